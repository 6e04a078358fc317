-- The records of one run after a seq, in order: a prefix of the log as of one snapshot (G2). A read without a lock.
select l.seq, l.record
from pgexec.run_log l
where l.run_id = $1::uuid and l.seq > $2::bigint
order by l.seq
