-- The next records of many runs, each after its own position: by primary key, no lock, and at most $3 of each run, of which one is the last that brings them to $4 bytes or more, so that no snapshot is held for long and no answer grows with the records. As a log has no gaps, the bound is one on seq, and what is beyond it is not looked at.
select w.run_id, l.seq, l.record
from unnest($1::text[]::uuid[], $2::bigint[]) w (run_id, after)
cross join lateral (
  select seq, record, sum(octet_length(record)) over (order by seq) - octet_length(record) as before
  from pgexec.run_log
  where run_id = w.run_id and seq > w.after and seq <= w.after + $3::integer
  order by seq
  limit $3::integer
) l
where l.before < $4::bigint
