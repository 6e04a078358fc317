-- Gives back slots of replica $1, each only if it is still its, and wakes as many parked runs that wait for them as other replicas have no nodes for.
with given as (
  delete from pgexec.kind_slots s
  using unnest($2::text[], $3::text[], $4::integer[]) as g (kind, key, slot)
  where s.kind = g.kind and s.key = g.key and s.slot = g.slot and s.replica_id = $1::integer
  returning s.kind, s.key
), freed as materialized (
  select g.kind, g.key, count(*) - coalesce((
    select sum(d.waiting) from pgexec.kind_demand d
    where d.kind = g.kind and d.key = g.key and d.seen_at > clock_timestamp() - interval '1 second'), 0) as n
  from given g
  group by g.kind, g.key
)
select coalesce(sum(pgexec.wake_held(f.kind, f.key, f.n::integer)), 0)::bigint as woken,
  set_config('synchronous_commit', 'off', true) as unflushed
from freed f
