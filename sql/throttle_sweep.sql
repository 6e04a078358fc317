-- Wakes parked runs that wait for a limit which would let them start: nothing else needs to work for a run to go on (G4). Any number of replicas may do it at once; the runs of each wake are locked (skip locked). Deletes what says nothing any more.
with queued as materialized (
  select q.kind, q.key, count(*) as n from pgexec.kind_queue q group by q.kind, q.key
), room as materialized (
  select q.kind, q.key,
    least(q.n, 500,
      l.max_in_flight - (select count(*) from pgexec.kind_slots s where s.kind = q.kind and s.key = q.key),
      -- What the rate lets start within a second.
      case when l.rate is not null then floor(l.burst - (
        least(coalesce((select extract(epoch from greatest(b.free_at - clock_timestamp(), '0')) from pgexec.kind_rates b
          where b.kind = q.kind and b.key = q.key), 0), l.burst * extract(epoch from l.per) / l.rate) - 1) * l.rate / extract(epoch from l.per)) end
    ) - coalesce((
      select sum(d.waiting) from pgexec.kind_demand d
      where l.kind is not null and d.kind = q.kind and d.key = q.key and d.seen_at > clock_timestamp() - interval '1 second'), 0) as n
  from queued q
  left join pgexec.limits_in_force l on l.kind = q.kind
), woken as materialized (
  select coalesce(sum(pgexec.wake_held(r.kind, r.key, r.n::integer)), 0)::bigint as n from room r where r.n >= 1
), stale as materialized (
  select q.run_id, q.epoch, q.kind, q.key from pgexec.kind_queue q
  where not exists (select from pgexec.runs r where r.run_id = q.run_id and r.epoch = q.epoch and r.status = 'parked')
  limit 1000
  for update of q skip locked
), removed as (
  delete from pgexec.kind_queue q using stale s
  where q.run_id = s.run_id and q.epoch = s.epoch and q.kind = s.kind and q.key = s.key
), over as materialized (
  select b.kind, b.key from pgexec.kind_rates b
  where b.free_at < clock_timestamp() - interval '1 minute'
  for update skip locked
), closed as (
  delete from pgexec.kind_rates b using over o where b.kind = o.kind and b.key = o.key
)
select n from woken
