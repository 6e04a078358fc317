-- The run that holds an idempotency key, and whether it is of the same kind and input: a plain read.
select run_id, kind = $2 and input = $3::jsonb as same
from pgexec.runs
where idempotency_key = $1
