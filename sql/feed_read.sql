-- The next records of many runs, each after its own position: by primary key, no lock, and at most so many of each run that no snapshot is held for long. As a log has no gaps, the bound is one on seq, and what is beyond it is not looked at.
select w.run_id, l.seq, l.record
from unnest($1::text[]::uuid[], $2::bigint[]) w (run_id, after)
cross join lateral (
  select seq, record from pgexec.run_log
  where run_id = w.run_id and seq > w.after and seq <= w.after + $3::integer
  order by seq
  limit $3::integer
) l
