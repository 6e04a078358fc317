-- One replica's turn at many limits: takes free slots for what it wants, buys tokens of rates or gives them back, tells what it has and whether others starve, and wakes parked runs for what may come free. A slot is a row by primary key, so two replicas never have the same one; rows go in by their order, so nobody deadlocks; a rate's row that somebody else has locked is left to the next turn. A waiting replica that has had no slot for longer is served first.
with asked as materialized (
  select a.*, clock_timestamp() as now
  from unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::float8[], $10::float8[])
    with ordinality as a (kind, key, most, want, waiting, ahead, tokens, token_us, burst, place)
), others as materialized (
  select a.place, d.replica_id, d.since, d.waiting,
    (select count(*) from pgexec.kind_slots s where s.kind = a.kind and s.key = a.key and s.replica_id = d.replica_id) as held
  from asked a
  join pgexec.kind_demand d on d.kind = a.kind and d.key = a.key
  where d.replica_id <> $1::integer and d.seen_at > a.now - interval '1 second'
), seen as materialized (
  select a.*, s.taken, s.mine, s.slots,
    (select count(distinct c.replica_id) from (
      select unnest(s.holders) union all select o.replica_id from others o where o.place = a.place union all select $1::integer
    ) c (replica_id)) as claimants,
    case when s.mine > 0 then a.now else coalesce(d.since, a.now) end as since
  from asked a
  cross join lateral (
    select count(*) as taken, count(*) filter (where k.replica_id = $1::integer) as mine,
      array_agg(k.slot) filter (where k.replica_id = $1::integer) as slots, array_agg(distinct k.replica_id) as holders
    from pgexec.kind_slots k
    where k.kind = a.kind and k.key = a.key
  ) s
  left join pgexec.kind_demand d on d.kind = a.kind and d.key = a.key and d.replica_id = $1::integer
), judged as materialized (
  select s.*, o.hungry, o.waiting as others_waiting,
    -- A whole slot each for those that have waited longer, and while anybody starves no more than a fair share.
    greatest(0, least(s.want, s.most - s.taken - o.earlier,
      case when o.hungry > 0 then greatest(1, (s.most + s.claimants - 1) / s.claimants) - s.mine else s.want end)) as take
  from seen s
  cross join lateral (
    select count(*) filter (where o.held < greatest(1, s.most / s.claimants)) as hungry,
      count(*) filter (where o.held <= s.mine and (o.since, o.replica_id) < (s.since, $1::integer)) as earlier,
      coalesce(sum(o.waiting), 0) as waiting
    from others o
    where o.place = s.place
  ) o
), took as (
  insert into pgexec.kind_slots (kind, key, slot, replica_id)
  select f.kind, f.key, f.slot, $1::integer
  from (
    select j.kind, j.key, j.take, n.slot, row_number() over (partition by j.place order by random()) as nth
    from judged j
    -- Among so many there are enough free ones, and others to choose from when several replicas take some at once.
    cross join lateral generate_series(1, least(j.most, j.taken + 4 * j.take + 32)::integer) n (slot)
    where j.take > 0
      and not exists (select from pgexec.kind_slots s where s.kind = j.kind and s.key = j.key and s.slot = n.slot)
  ) f
  where f.nth <= f.take
  order by f.kind, f.key, f.slot
  on conflict do nothing
  returning kind, key, slot
), outcome as materialized (
  select j.*, array(select t.slot from took t where t.kind = j.kind and t.key = j.key) as new_slots
  from judged j
), noted as (
  insert into pgexec.kind_demand (kind, key, replica_id, waiting, since, seen_at)
  select o.kind, o.key, $1::integer, o.waiting, o.since, o.now
  from outcome o
  where o.want > cardinality(o.new_slots)
  order by o.kind, o.key
  on conflict (kind, key, replica_id) do update set waiting = excluded.waiting, since = excluded.since, seen_at = excluded.seen_at
), unnoted as (
  delete from pgexec.kind_demand d using outcome o
  where d.kind = o.kind and d.key = o.key and d.replica_id = $1::integer and o.want <= cardinality(o.new_slots)
), mine_now as materialized (
  select a.place, b.kind, b.key, b.free_at
  from asked a
  join pgexec.kind_rates b on b.kind = a.kind and b.key = a.key
  where a.tokens <> 0
  for update of b skip locked
), priced as materialized (
  select a.place, a.kind, a.key, a.now, a.token_us, a.burst, m.place is not null as locked, b.kind is not null as known,
    -- A debt made at a lower rate becomes that of a burst at this one.
    d.us > a.burst * a.token_us as lowered, least(d.us, a.burst * a.token_us) as debt_us,
    a.tokens
  from asked a
  left join pgexec.kind_rates b on b.kind = a.kind and b.key = a.key
  left join mine_now m on m.place = a.place
  cross join lateral (
    select greatest(extract(epoch from coalesce(m.free_at, b.free_at, a.now) - a.now)::float8 * 1000000, 0) as us
  ) d
  where a.token_us > 0
), bought as materialized (
  select p.*, case
    when p.known and not p.locked then 0
    when p.tokens < 0 then p.tokens
    else greatest(0, least(p.tokens, floor(p.burst - p.debt_us / p.token_us + 0.000001)))::integer end as n
  from priced p
), paid as (
  update pgexec.kind_rates b
  set free_at = g.now + greatest(g.debt_us + g.n * g.token_us, 0) * interval '1 microsecond'
  from bought g
  where g.locked and (g.n <> 0 or g.lowered) and b.kind = g.kind and b.key = g.key
  returning b.kind, b.key
), opened as (
  insert into pgexec.kind_rates (kind, key, free_at)
  select g.kind, g.key, g.now + g.n * g.token_us * interval '1 microsecond'
  from bought g
  where not g.known and g.n > 0
  order by g.kind, g.key
  on conflict do nothing
  returning kind, key
), woken as materialized (
  select sum(pgexec.wake_held(o.kind, o.key, (o.ahead - o.waiting - o.others_waiting)::integer)) as n
  from outcome o
  where o.ahead > o.waiting + o.others_waiting
    and exists (select from pgexec.kind_queue q where q.kind = o.kind and q.key = o.key)
)
select coalesce(o.slots, '{}') || o.new_slots as slots, o.hungry > 0 as hungry, (o.most / o.claimants)::integer as share,
  greatest(o.taken - o.most, 0)::integer as excess,
  exists (select from pgexec.kind_queue q where q.kind = o.kind and q.key = o.key) as queued,
  coalesce(case when g.n < 0 or exists (select from paid p where p.kind = o.kind and p.key = o.key)
    or exists (select from opened p where p.kind = o.kind and p.key = o.key) then g.n end, 0) as tokens,
  -- When the rate lets another one start.
  coalesce(greatest(g.debt_us + g.n * g.token_us - (g.burst - 1) * g.token_us, 0), 0)::bigint as next_us,
  (select n from woken) as woken,
  -- Nothing of this outlives a crash of the server.
  set_config('synchronous_commit', 'off', true) as unflushed
from outcome o
left join bought g on g.place = o.place
order by o.place
