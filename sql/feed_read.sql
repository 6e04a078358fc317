-- The next records of many runs, each after its own position, in order; by primary key, no lock, and at most so many of each run that no snapshot is held for long.
select w.run_id, l.seq, l.record
from unnest($1::text[]::uuid[], $2::bigint[]) w (run_id, after)
cross join lateral (
  select seq, record from pgexec.run_log
  where run_id = w.run_id and seq > w.after
  order by seq
  limit $3
) l
order by w.run_id, l.seq
