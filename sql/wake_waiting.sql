-- Wakes a bounded batch of runs of the queues $3 that were put back for want of a handler and of whose missing kinds this replica has one, or programs outside do one; rows another session is busy with are left to it (skip locked). Nobody is notified; answers how many, and their queues.
with waiting as (
  select run_id, queue from pgexec.runs
  where status = 'queued' and wake_job is null and waiting_kinds is not null
    and waiting_kinds && ($1::text[] || array(select k.kind from pgexec.task_kinds k)) and run_at <= statement_timestamp() and queue = any ($3::text[])
  order by run_at
  limit $2
  for update skip locked
)
select pgexec.wake_runs(array(select run_id from waiting order by run_id)) as woken, array(select distinct queue from waiting) as queues
