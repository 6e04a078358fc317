-- Wakes a bounded batch of runs whose time has come and that have no wake; rows another session is busy with are left to it (skip locked), so any number of replicas may do this at once. Nobody is notified. Also answers in which queues, in how many microseconds the next run within the window is due, and the clock.
with due as (
  select run_id, queue from pgexec.runs
  where status in ('queued', 'parked') and wake_job is null and waiting_kinds is null and run_at <= statement_timestamp()
  order by run_at
  limit $1
  for no key update skip locked
), woken as (
  select pgexec.wake_runs(array(select run_id from due order by run_id)) as n
)
select woken.n, array(select distinct queue from due) as queues,
  (select (extract(epoch from run_at - statement_timestamp()) * 1000000)::bigint from pgexec.runs
   where status in ('queued', 'parked') and wake_job is null and waiting_kinds is null
     and run_at > statement_timestamp() and run_at <= statement_timestamp() + $2 * interval '1 microsecond'
   order by run_at limit 1) as next_us,
  statement_timestamp() as at
from woken
