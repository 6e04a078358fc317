-- Puts back all runs of replica $1, wakes included, and the wake jobs it had fetched, and takes it off the list. Under its advisory lock and its row's lock, taken before: it can claim nothing more. A run that somebody else has locked is left, and the replica stays listed for the next pass; with $2 null, which says that it closes its session itself, as closed: then nobody says later that it died. Nobody is notified: the queues whose wakes are to be told of come back.
with locked as materialized (
  select run_id from pgexec.runs where owner = $1::integer order by run_id for update skip locked
), rest as materialized (
  select exists (select from pgexec.runs where owner = $1::integer and run_id not in (select run_id from locked)) as held
), put_back as (
  update pgexec.runs r
  set owner = null, status = 'queued',
    orphaned_by = case when (select p.closed from pgexec.replicas p where p.replica_id = $1::integer) is not true then $2::integer end, may_ask = true, wake_job = nextval('pgexec.river_job_id_seq')
  from locked l
  where r.run_id = l.run_id and r.owner = $1::integer
  returning r.run_id, r.wake_job, r.queue, r.priority
), jobs as (
  insert into pgexec.river_job (id, args, kind, queue, priority, max_attempts)
  select wake_job, jsonb_build_object('run_id', run_id), 'pgexec_wake', queue, priority, 25
  from put_back
), fetched as materialized (
  select j.id from pgexec.river_job j
  where j.state = 'running' and j.kind = 'pgexec_wake'
    and j.attempted_by[array_upper(j.attempted_by, 1)] = 'pgexec-' || $1::integer
  order by j.id
  for update skip locked
), returned as (
  update pgexec.river_job j
  set state = 'available', scheduled_at = now(), attempt = greatest(j.attempt - 1, 0)
  from fetched f
  where j.id = f.id
  returning j.queue
), gone as (
  delete from pgexec.replicas
  where replica_id = $1::integer and not (select held from rest)
  returning replica_id
), closed as (
  update pgexec.replicas set closed = true
  where replica_id = $1::integer and $2::integer is null and (select held from rest)
)
select array(select run_id from put_back order by run_id) as run_ids,
  (select count(*) from returned) as jobs,
  exists (select from gone) as gone,
  array(select queue from put_back union select queue from returned) as queues
