-- Gives runs back to the queue, each only while owner and epoch are still ours: with a wake, or, when they wait for kinds or for $6 microseconds, without. A row somebody else has locked is left and comes back as still held; no lock is waited for. Nobody is notified: the queues whose wakes are to be told of come back.
with held as materialized (
  select r.run_id, h.epoch
  from unnest($2::text[]::uuid[], $3::bigint[]) as h (run_id, epoch)
  join pgexec.runs r on r.run_id = h.run_id and r.owner = $1::integer and r.epoch = h.epoch
), locked as materialized (
  select r.run_id
  from held h
  join pgexec.runs r on r.run_id = h.run_id and r.owner = $1::integer and r.epoch = h.epoch
  order by r.run_id
  for update of r skip locked
), released as (
  update pgexec.runs r
  set owner = null, status = 'queued', may_ask = true, waiting_kinds = $4::text[], reason = nullif(pgexec.utf8_lossy($5::bytea), ''),
    run_at = case when $6::bigint > 0 then clock_timestamp() + $6::bigint * interval '1 microsecond' else r.run_at end,
    wake_job = case when $4::text[] is null and $6::bigint = 0 then nextval('pgexec.river_job_id_seq') end
  from locked l
  where r.run_id = l.run_id
  returning r.run_id, r.wake_job, r.queue, r.priority
), jobs as (
  insert into pgexec.river_job (id, args, kind, queue, priority, max_attempts)
  select wake_job, jsonb_build_object('run_id', run_id), 'pgexec_wake', queue, priority, 25
  from released
  where wake_job is not null
)
select array(select run_id from held except select run_id from released) as still_held,
  array(select distinct queue from released where wake_job is not null) as queues
