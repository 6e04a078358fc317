-- Gives a new wake to a bounded batch of due, unowned runs whose job cannot be delivered any more: it is gone, finished, running under a replica that is not listed, or running here without being in progress here. The run's row is locked (skip locked) and its wake replaced in the same transaction, so that a run has one wake however many replicas sweep. Nobody is notified. Answers the last job looked at, from which the next sweep goes on, the number of runs woken and their queues.
with page as (
  select wake_job from pgexec.runs
  where wake_job > $1
  order by wake_job
  limit $2
), lost as (
  select p.wake_job
  from page p
  left join pgexec.river_job j on j.id = p.wake_job
  where j.id is null
    or j.state in ('completed', 'cancelled', 'discarded')
    or (j.state = 'running' and j.kind = 'pgexec_wake' and (
      (j.attempted_by[array_upper(j.attempted_by, 1)] = $3
        and j.attempted_at < statement_timestamp() - $4 * interval '1 microsecond' and j.id <> all ($5::bigint[]))
      or (j.attempted_by[array_upper(j.attempted_by, 1)] ~ '^pgexec-[0-9]{1,10}$' and not exists (
        select from pgexec.replicas s
        where 'pgexec-' || s.replica_id = j.attempted_by[array_upper(j.attempted_by, 1)]))))
), held as (
  -- A wake is of one run. By an array, since a join of page and table would be made the wrong way round while the table grows.
  select r.run_id, r.wake_job, r.queue from pgexec.runs r
  where r.wake_job = any (array(select l.wake_job from lost l)) and r.owner is null and r.status in ('queued', 'parked')
  order by r.run_id
  for update of r skip locked
), stale as (
  delete from pgexec.river_job j using held
  where j.id = held.wake_job and j.state = 'running'
), freed as (
  update pgexec.runs r set wake_job = null
  from held where r.run_id = held.run_id
  returning r.run_id
)
select coalesce((select max(wake_job) from page), 0) as last_job,
  (select count(*) from page) as looked_at,
  pgexec.wake_runs(array(select run_id from freed order by run_id)) as woken,
  array(select distinct queue from held) as queues
