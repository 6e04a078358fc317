-- The record at one place in each of some logs, where there is one: whose append is it? A read without a lock.
select l.run_id, l.record
from unnest($1::uuid[], $2::bigint[]) w (run_id, seq)
join pgexec.run_log l on l.run_id = w.run_id and l.seq = w.seq
