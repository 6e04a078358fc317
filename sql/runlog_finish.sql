-- Ends or pauses many runs, each all or not at all, and returns those it ended: the finished record is in the log if and only if the run's row says so (G1–G3). Under the row locks of the runs, taken first and in the order of their ids, on the newest version of each row: a signal that came meanwhile is waited for, a claim cannot pass.
with ended as materialized (
  select * from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bytea[])
    as e (run_id, head, owner, epoch, record, status, result, result_seq, error, reason)
), held as materialized (
  -- "is not distinct from" keeps the index on owner out of it: the primary key finds the row.
  select r.run_id
  from ended e
  join pgexec.runs r on r.run_id = e.run_id
  where r.owner is not distinct from e.owner and r.epoch = e.epoch
  order by r.run_id
  for update of r
), logged as (
  insert into pgexec.run_log (run_id, seq, record)
  select e.run_id, e.head + 1, e.record
  from ended e
  join held h on h.run_id = e.run_id
  where (select true from pgexec.run_log l where l.run_id = e.run_id and l.seq = e.head)
  order by e.run_id
  on conflict do nothing
  returning run_id
)
update pgexec.runs r
set status = e.status, owner = null, finished_at = case when e.status <> 'paused' then clock_timestamp() end,
  wake_job = null, reason = pgexec.utf8_lossy(e.reason), waiting_kinds = null,
  result = pgexec.json_lossy(e.result), result_seq = nullif(e.result_seq, 0), error = pgexec.utf8_lossy(e.error)
from ended e
join logged l on l.run_id = e.run_id
where r.run_id = e.run_id
returning r.run_id
