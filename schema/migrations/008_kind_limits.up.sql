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

-- Those tasks that a worker can take under the limits of the kind. In flight are those with a lease that has not expired.
-- Whoever takes tasks of a kind with a limit holds the kind's advisory lock to the end of the transaction, so that what
-- is counted stays true; who does not get it within a moment finds nothing to take.
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
  full_keys text[];
  next_task bigint[];
  next_key text;
  allowed bigint[] := '{}';
begin
  select * into bound from pgexec.limits_in_force l where l.kind = task_kind;
  if not found then
    return pgexec.lock_due_tasks(task_kind, most, '{}', '{}');
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'tasks of kind %, which has a limit, can be taken only in a transaction that is read committed', task_kind
      using errcode = 'feature_not_supported';
  end if;
  for try in 1 .. 50 loop
    exit when pg_try_advisory_xact_lock(1885824376, -2 - (hashtext(task_kind) & 1073741823));
    if try = 50 then
      return allowed;
    end if;
    perform pg_sleep(0.001 + random() * 0.004);
  end loop;
  at := clock_timestamp();
  token := bound.per / bound.rate;
  burst := greatest(bound.burst, floor(0.1 / extract(epoch from token)));
  in_flight := coalesce((
    select jsonb_object_agg(c.limit_key, c.n)
    from (
      select t.limit_key, count(*) as n from pgexec.tasks t
      where t.kind = task_kind and t.priority in (1, 2, 3, 4) and t.state in ('waiting', 'taken')
        and coalesce(t.lease_until, t.created_at) > at and t.state is not distinct from 'taken'
      group by t.limit_key
    ) c), '{}');
  while cardinality(allowed) < most and coalesce(bound.max_in_flight, 1) > 0 loop
    full_keys := array(
      select f.key from jsonb_each_text(in_flight) f where f.value::bigint >= bound.max_in_flight
      union
      select b.key from pgexec.kind_rates b where b.kind = task_kind and b.free_at - (burst - 1) * token > at);
    next_task := pgexec.lock_due_tasks(task_kind, 1, full_keys, allowed);
    exit when next_task = '{}';
    allowed := allowed || next_task;
    select t.limit_key into next_key from pgexec.tasks t where t.task_id = next_task[1];
    in_flight := in_flight || jsonb_build_object(next_key, coalesce((in_flight ->> next_key)::bigint, 0) + 1);
    if token is not null then
      insert into pgexec.kind_rates (kind, key, free_at) values (task_kind, next_key, at + token)
      on conflict (kind, key) do update set free_at = greatest(kind_rates.free_at, at) + token;
    end if;
  end loop;
  return allowed;
end
$$;
