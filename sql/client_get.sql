-- One run as its row shows it: a plain read.
select run_id, kind, input, status, owner, epoch, queue, priority, labels, idempotency_key, nullif(run_at, 'infinity') as run_at, created_by,
  created_at, started_at, finished_at, result, coalesce(result_seq, 0) as result_seq, error, reason
from pgexec.runs
where run_id = $1
