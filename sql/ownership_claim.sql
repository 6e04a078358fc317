-- Claims what can be claimed of many wanted runs and completes the wakes that are used up, as one statement: all of it or nothing, and no transaction stays open if this process freezes. Under: the replica's own row (key share, so that it cannot be declared dead meanwhile), the dead owners' advisory locks, each claimed run's row in the version that was judged, and the log's primary key, which a last append of the former owner makes fail. No lock is waited for.
with want as materialized (
  select * from unnest($2::text[]::uuid[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::bytea[])
    as w (run_id, job, epoch, owner, orphaned_by, record)
), me as materialized (
  select kinds, clock_timestamp() as now from pgexec.replicas
  where replica_id = $1::integer
  for key share skip locked
), dead as materialized (
  select o.owner from (select distinct owner from want where owner not in (0, $1::integer)) o
  where pg_try_advisory_xact_lock(1885824376, o.owner)
), seen as materialized (
  select w.run_id, w.job, w.record, r.xmin as version, r.wake_job,
    r.epoch = w.epoch and coalesce(r.owner, 0) = w.owner and coalesce(r.orphaned_by, 0) = w.orphaned_by as as_looked_at,
    coalesce(case r.status
      when 'queued' then r.run_at <= me.now
      when 'parked' then r.run_at <= me.now or r.wake_job is not null
      when 'running' then dead.owner is not null
    end and (r.waiting_kinds is null or r.waiting_kinds && me.kinds
      or exists (select from pgexec.task_kinds k where k.kind = any (r.waiting_kinds))), false) as claimable
  from me
  cross join want w
  left join pgexec.runs r on r.run_id = w.run_id
  left join dead on dead.owner = r.owner
), locked as materialized (
  select s.run_id, s.job, s.record, s.claimable
  from seen s
  join pgexec.runs r on r.run_id = s.run_id and r.xmin = s.version
  where (s.claimable and s.as_looked_at) or (not s.claimable and s.wake_job = s.job)
  order by s.run_id
  for update of r skip locked
), claimed as (
  update pgexec.runs r
  set owner = $1::integer, status = 'running', epoch = r.epoch + 1, wake_job = null, orphaned_by = null,
    waiting_kinds = null, reason = null, started_at = coalesce(r.started_at, me.now),
    run_at = least(r.run_at, me.now)
  from locked l, me
  where r.run_id = l.run_id and l.claimable
  returning r.run_id, l.job, l.record, r.kind, r.input, r.epoch, r.priority, r.created_at, r.inbox, r.depth, r.parent_run_id,
    r.max_tokens, r.max_cost_usd, r.max_nodes, r.max_wall_ms, r.deadline, r.max_parallel, r.soft_limit
), logged as (
  insert into pgexec.run_log (run_id, seq, record)
  select c.run_id,
    1 + coalesce((select l.seq from pgexec.run_log l where l.run_id = c.run_id order by l.seq desc limit 1), 0),
    c.record
  from claimed c
  order by c.run_id
  returning run_id, seq
), cleared as (
  update pgexec.runs r set wake_job = null
  from locked l
  where r.run_id = l.run_id and not l.claimable
  returning r.run_id, l.job
), settled as (
  select run_id, job from claimed
  union all
  select run_id, job from cleared
  union all
  select run_id, job from seen
  where version is null or (not claimable and wake_job is distinct from job)
), used_up as materialized (
  select j.id from pgexec.river_job j
  where j.id in (select job from settled) and j.finalized_at is null
  for update skip locked
), completed as (
  update pgexec.river_job j set state = 'completed', finalized_at = now()
  from used_up u
  where j.id = u.id
)
select w.run_id, w.run_id not in (select run_id from settled) as busy,
  c.epoch, l.seq, c.kind, pgexec.small_text(c.input) as input, c.input is not null as has_input, c.priority, c.created_at,
  coalesce(c.inbox, 0) as inbox, coalesce(c.depth, 0) as depth, c.parent_run_id,
  coalesce(c.max_tokens, 0), pgexec.nano_usd(c.max_cost_usd), coalesce(c.max_nodes, 0)::bigint, coalesce(c.max_wall_ms, 0),
  case when c.deadline is null then 0 else greatest(least(extract(epoch from c.deadline) * 1000000, 253402128000000000), 1) end::bigint, coalesce(c.max_parallel, 0), coalesce(c.soft_limit, 0)::float8
from me
cross join want w
left join claimed c on c.run_id = w.run_id
left join logged l on l.run_id = w.run_id
