-- The newest runs first, by id, before a cursor: a plain read along the primary key.
select run_id, kind, input, status, owner, epoch, queue, priority, labels, idempotency_key, nullif(run_at, 'infinity') as run_at, created_by,
  created_at, started_at, finished_at, result, coalesce(result_seq, 0) as result_seq, error, reason
from pgexec.runs
where run_id < coalesce($1, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
  and ($2::text[] is null or status = any ($2))
  and ($3::text is null or kind = $3)
order by run_id desc
limit $4
