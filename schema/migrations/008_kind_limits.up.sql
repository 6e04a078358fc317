-- Limits of kinds in the whole fleet: how many nodes of a kind are in flight at once, and how many start in a time.
--
-- A slot is a row: nodes 1…max_in_flight of a kind and key, by primary key. A row is there while a replica that is
-- listed has the slot, so what is in flight never exceeds the number of slots, and the death of a replica frees what
-- it had in the transaction that takes it off the list.

-- Declared by people: it wins over what programs declare, and may change at any time.
create table pgexec.kind_limits (
  kind          text primary key check (kind <> '' and length(kind) <= 128),
  -- Nodes in flight at once in the whole fleet; 0 stops the kind; null is no bound.
  max_in_flight integer check (max_in_flight between 0 and 10000),
  -- Starts in each span of "per", after a burst; null is no bound.
  rate          integer check (rate > 0),
  per           interval not null default '1 second' check (per between interval '1 millisecond' and interval '31 days'),
  burst         integer not null default 1 check (burst between 1 and 1000000),
  -- Where in a node's input its key is, as a JSON pointer: the limits are then those of each key.
  key_pointer   text check (key_pointer ~ '^(/([^~]|~[01])*)?$' and length(key_pointer) <= 1024),
  check (max_in_flight is not null or rate is not null)
);

-- Declared by the programs that run now.
create table pgexec.declared_limits (
  replica_id    integer not null references pgexec.replicas (replica_id) on delete cascade,
  kind          text not null,
  max_in_flight integer check (max_in_flight between 1 and 10000),
  rate          integer check (rate > 0),
  per           interval not null,
  burst         integer not null check (burst between 1 and 1000000),
  key_pointer   text,
  primary key (replica_id, kind)
);

-- The limit of each kind that has one: that of the table, else that of the replica that started last.
create view pgexec.limits_in_force as
select l.kind, l.max_in_flight, l.rate, l.per, l.burst, coalesce(l.key_pointer, '') as key_pointer, null::integer as declared_by
from pgexec.kind_limits l
union all
select d.*
from (
  select distinct on (d.kind) d.kind, d.max_in_flight, d.rate, d.per, d.burst, coalesce(d.key_pointer, ''), d.replica_id
  from pgexec.declared_limits d
  join pgexec.replicas r on r.replica_id = d.replica_id
  order by d.kind, r.started_at desc, d.replica_id
) d
where not exists (select from pgexec.kind_limits l where l.kind = d.kind);

-- What follows but the queue is worth nothing after a crash of the server, which ends the sessions of all replicas: unlogged.

-- The slots that replicas have: each for one node in flight, or for the next one.
create unlogged table pgexec.kind_slots (
  kind       text not null,
  key        text not null,
  slot       integer not null check (slot > 0),
  replica_id integer not null references pgexec.replicas (replica_id) on delete cascade,
  primary key (kind, key, slot)
);
create index kind_slots_replica on pgexec.kind_slots (replica_id);

-- The replicas that want more slots than they have.
create unlogged table pgexec.kind_demand (
  kind       text not null,
  key        text not null,
  replica_id integer not null references pgexec.replicas (replica_id) on delete cascade,
  -- Its nodes that wait.
  waiting    integer not null,
  -- Since when it has had none.
  since      timestamptz not null,
  seen_at    timestamptz not null,
  primary key (kind, key, replica_id)
);
create index kind_demand_replica on pgexec.kind_demand (replica_id);

-- Rates that are in use: the time at which all that was started is paid for. A row whose time is over says nothing.
create unlogged table pgexec.kind_rates (
  kind    text not null,
  key     text not null,
  free_at timestamptz not null,
  primary key (kind, key)
);

-- Parked runs that wait for a limit, in their order. A row is made with the parking, and counts while the run is still
-- parked by the owner of that epoch: it is never changed, so whoever deletes it deletes no newer one.
create table pgexec.kind_queue (
  run_id uuid not null,
  epoch  bigint not null,
  kind   text not null,
  key    text not null,
  since  timestamptz not null,
  primary key (run_id, epoch, kind, key)
);
create index kind_queue_order on pgexec.kind_queue (kind, key, since);

-- Wakes the runs that have waited longest for a limit, at most so many. Waits for no lock.
create function pgexec.wake_held(for_kind text, for_key text, most integer) returns integer
language plpgsql volatile
set search_path = ''
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
  run_ids uuid[];
begin
  if most <= 0 then
    return 0;
  end if;
  with picked as materialized (
    select q.run_id
    from pgexec.kind_queue q
    join pgexec.runs r on r.run_id = q.run_id and r.epoch = q.epoch
    where q.kind = for_kind and q.key = for_key and r.status = 'parked' and r.wake_job is null
    order by q.since
    limit most
    for update of r skip locked
  ), gone as (
    delete from pgexec.kind_queue q using picked p where q.run_id = p.run_id
  )
  select array(select p.run_id from picked p order by p.run_id) into run_ids;
  return case when cardinality(run_ids) > 0 then pgexec.wake_runs(run_ids) else 0 end;
end
$$;
revoke execute on function pgexec.wake_held(text, text, integer) from public;

-- One line for each kind with a limit, and for each of its keys that is in use.
create view pgexec.limit_overview as
select
  l.kind,
  k.key,
  l.max_in_flight,
  -- Slots that replicas have: nodes in flight, and for some 100 ms those that were.
  -- Of kinds that programs outside do: tasks with a lease that has not expired.
  (select count(*) from pgexec.kind_slots s where s.kind = l.kind and s.key = k.key)
    + (select count(*) from pgexec.tasks t
      where t.kind = l.kind and t.limit_key = k.key and t.state = 'taken' and t.lease_until > clock_timestamp()) as in_flight,
  -- Nodes of runs in memory, and runs that are parked.
  (select coalesce(sum(d.waiting), 0) from pgexec.kind_demand d
   where d.kind = l.kind and d.key = k.key and d.seen_at > clock_timestamp() - interval '3 seconds') as waiting_nodes,
  (select count(*) from pgexec.kind_queue q join pgexec.runs r on r.run_id = q.run_id and r.epoch = q.epoch and r.status = 'parked'
   where q.kind = l.kind and q.key = k.key) as parked_runs,
  l.rate,
  case when l.rate is not null then l.per end as per,
  case when l.rate is not null then l.burst end as burst,
  -- When the rate lets the next node start; null when that is now.
  (select least(b.free_at - (l.burst - 1) * (l.per / l.rate), clock_timestamp() + l.per / l.rate) from pgexec.kind_rates b
   where b.kind = l.kind and b.key = k.key and b.free_at - (l.burst - 1) * (l.per / l.rate) > clock_timestamp()) as next_start,
  nullif(l.key_pointer, '') as key_pointer,
  -- The replica whose program declares it; null for one of pgexec.kind_limits.
  l.declared_by
from pgexec.limits_in_force l
left join (
  select s.kind, s.key from pgexec.kind_slots s
  union select d.kind, d.key from pgexec.kind_demand d
  union select b.kind, b.key from pgexec.kind_rates b
  union select q.kind, q.key from pgexec.kind_queue q
  union select t.kind, t.limit_key from pgexec.tasks t where t.state = 'taken'
) k on k.kind = l.kind;

-- What a limit needs to pass over the tasks of a key without reading them.
create index tasks_of_key on pgexec.tasks (kind, priority, limit_key, (coalesce(lease_until, created_at))) where state in ('waiting', 'taken');

-- Waits a moment for the lock of a kind's limits, which is held to the end of the transaction, so that what is counted
-- under it stays true.
create function pgexec.lock_kind(task_kind text) returns boolean
language plpgsql volatile
set search_path = ''
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'tasks of kind %, which has a limit, can be taken only in a transaction that is read committed', task_kind
      using errcode = 'feature_not_supported';
  end if;
  for try in 1 .. 50 loop
    if pg_try_advisory_xact_lock(1885824376, -2 - (hashtext(task_kind) & 1073741823)) then
      return true;
    end if;
    perform pg_sleep(0.001 + random() * 0.004);
  end loop;
  return false;
end
$$;
revoke execute on function pgexec.lock_kind(text) from public;

-- How many tasks of each key are in flight: those with a lease that has not expired.
create function pgexec.tasks_in_flight(task_kind text, at timestamptz) returns jsonb
language sql volatile
set search_path = ''
set enable_seqscan = off
as $$
  select coalesce(jsonb_object_agg(c.limit_key, c.n), '{}')
  from (
    select t.limit_key, count(*) as n from pgexec.tasks t
    where t.kind = task_kind and t.priority in (1, 2, 3, 4) and t.state in ('waiting', 'taken')
      and coalesce(t.lease_until, t.created_at) > at and t.state is not distinct from 'taken'
    group by t.limit_key
  ) c
$$;
revoke execute on function pgexec.tasks_in_flight(text, timestamptz) from public;

-- As pgexec.lock_due_tasks, without some tasks and those of the keys of an object. However many of those wait, few rows are read: up to
-- a hundred other keys are compared by their oldest tasks; when there are more, the thousand oldest tasks come before.
create function pgexec.lock_due_tasks_but(task_kind text, most integer, full_keys jsonb, but_not bigint[]) returns bigint[]
language plpgsql volatile
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
  at timestamptz := clock_timestamp();
  -- Some more than are wanted, of which others may have locked some.
  enough constant integer := most + 20;
  keys text[];
  found bigint[];
  due bigint[] := '{}';
begin
  for urgency in 1 .. 4 loop
    with recursive walked as (
      (select t.limit_key, (not full_keys ? t.limit_key)::integer as n
       from pgexec.tasks t
       where t.kind = task_kind and t.priority = urgency and t.state in ('waiting', 'taken')
       order by t.limit_key
       limit 1)
      union all
      select s.limit_key, w.n + (not full_keys ? s.limit_key)::integer
      from walked w
      cross join lateral (
        select t.limit_key from pgexec.tasks t
        where t.kind = task_kind and t.priority = urgency and t.limit_key > w.limit_key and t.state in ('waiting', 'taken')
        order by t.limit_key
        limit 1
      ) s
      where w.n < 100
    )
    select array(select w.limit_key from walked w where not full_keys ? w.limit_key) into keys;
    found := '{}';
    if cardinality(keys) = 100 then
      found := array(
        select o.task_id
        from (
          select t.task_id, t.run_id, t.limit_key, coalesce(t.lease_until, t.created_at) as due_at
          from pgexec.tasks t
          where t.kind = task_kind and t.priority = urgency and t.state in ('waiting', 'taken')
            and coalesce(t.lease_until, t.created_at) <= at
          order by coalesce(t.lease_until, t.created_at)
          limit 1000
        ) o
        where not full_keys ? o.limit_key and o.task_id <> all (but_not)
          and (select r.status in ('queued', 'running', 'parked') and r.wanted is null from pgexec.runs r where r.run_id = o.run_id)
        order by o.due_at
        limit enough);
    end if;
    if found = '{}' then
      found := array(
        select o.task_id
        from unnest(keys) k (key)
        cross join lateral (
          select t.task_id, coalesce(t.lease_until, t.created_at) as due_at
          from pgexec.tasks t
          where t.kind = task_kind and t.priority = urgency and t.limit_key = k.key and t.state in ('waiting', 'taken')
            and coalesce(t.lease_until, t.created_at) <= at and t.task_id <> all (but_not)
            and (select r.status in ('queued', 'running', 'parked') and r.wanted is null from pgexec.runs r where r.run_id = t.run_id)
          order by coalesce(t.lease_until, t.created_at)
          limit enough
        ) o
        order by o.due_at
        limit enough);
    end if;
    due := due || array(
      select t.task_id
      from pgexec.tasks t
      where t.task_id = any (found) and t.state in ('waiting', 'taken') and coalesce(t.lease_until, t.created_at) <= at
      order by coalesce(t.lease_until, t.created_at)
      limit most - cardinality(due)
      for update of t skip locked);
    exit when cardinality(due) = most;
  end loop;
  return due;
end
$$;
revoke execute on function pgexec.lock_due_tasks_but(text, integer, jsonb, bigint[]) from public;

-- Those tasks that a worker can take under the limits of the kind, counted under the kind's lock; who does not get that
-- finds nothing to take.
create or replace function pgexec.lock_allowed_tasks(task_kind text, most integer) returns bigint[]
language plpgsql volatile
set search_path = ''
as $$
declare
  bound record;
  token interval;
  burst double precision;
  at timestamptz;
  in_flight jsonb;
  full_keys jsonb;
  due bigint[];
  looked_at bigint[] := '{}';
  accepted bigint[];
  counted jsonb;
  filled jsonb;
  allowed bigint[] := '{}';
begin
  select * into bound from pgexec.limits_in_force l where l.kind = task_kind;
  if not found then
    return pgexec.lock_due_tasks(task_kind, most);
  elsif bound.max_in_flight = 0 or not pgexec.lock_kind(task_kind) then
    return allowed;
  end if;
  at := clock_timestamp();
  token := bound.per / bound.rate;
  burst := greatest(bound.burst, floor(0.1 / extract(epoch from token)));
  in_flight := pgexec.tasks_in_flight(task_kind, at);
  full_keys := coalesce((
    select jsonb_object_agg(f.key, true)
    from (
      select c.key from jsonb_each_text(in_flight) c where c.value::bigint >= bound.max_in_flight
      union
      select b.key from pgexec.kind_rates b where b.kind = task_kind and b.free_at - (burst - 1) * token > at
    ) f), '{}');
  loop
    due := pgexec.lock_due_tasks_but(task_kind, most - cardinality(allowed), full_keys, looked_at);
    exit when due = '{}';
    looked_at := looked_at || due;
    with found as materialized (
      select t.task_id, t.limit_key, d.n, row_number() over (partition by t.limit_key order by d.n) as nth
      from unnest(due) with ordinality d (task_id, n)
      join pgexec.tasks t on t.task_id = d.task_id
    ), room as materialized (
      select k.limit_key, least(
        bound.max_in_flight - coalesce((in_flight ->> k.limit_key)::bigint, 0),
        1 + floor(burst - 1 - extract(epoch from greatest(coalesce(b.free_at, at) - at, '0')) / extract(epoch from token) + 0.000001)) as n
      from (select distinct f.limit_key from found f) k
      left join pgexec.kind_rates b on token is not null and b.kind = task_kind and b.key = k.limit_key
    ), let as materialized (
      select f.task_id, f.limit_key, f.n from found f join room r on r.limit_key = f.limit_key where f.nth <= r.n
    ), by_key as materialized (
      select l.limit_key, count(*) as n, r.n = count(*) as filled
      from let l join room r on r.limit_key = l.limit_key
      group by l.limit_key, r.n
    ), paid as (
      insert into pgexec.kind_rates as b (kind, key, free_at)
      select task_kind, k.limit_key, at + k.n * token from by_key k where token is not null
      on conflict (kind, key) do update set free_at = greatest(b.free_at, at) + (excluded.free_at - at)
    )
    select array(select l.task_id from let l order by l.n),
      coalesce((select jsonb_object_agg(k.limit_key, k.n + coalesce((in_flight ->> k.limit_key)::bigint, 0)) from by_key k), '{}'),
      coalesce((select jsonb_object_agg(k.limit_key, true) from by_key k where k.filled), '{}')
    into accepted, counted, filled;
    allowed := allowed || accepted;
    in_flight := in_flight || counted;
    full_keys := full_keys || filled;
    exit when cardinality(allowed) = most;
  end loop;
  return allowed;
end
$$;

-- A task whose lease has expired is not in flight any more, and is again only if the limit has room.
create or replace function pgexec.may_renew_lapsed(id bigint) returns boolean
language plpgsql volatile
set search_path = ''
as $$
declare
  task record;
  most integer;
begin
  select t.kind, t.limit_key, t.lease_until into task from pgexec.tasks t where t.task_id = id;
  select l.max_in_flight into most from pgexec.limits_in_force l where l.kind = task.kind;
  return most is null or task.lease_until <= clock_timestamp()
    and pgexec.lock_kind(task.kind) and coalesce((pgexec.tasks_in_flight(task.kind, clock_timestamp()) ->> task.limit_key)::bigint, 0) < most;
end
$$;
