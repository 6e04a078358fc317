-- The tables of the core. River's tables are made beside them by River's own
-- migrator, before this one runs.

-- A version 7 UUID from the database's clock: 48 bits of milliseconds, 74 random bits.
create function pgexec.uuid7() returns uuid
language sql volatile parallel safe
set search_path = ''
as $$
  select encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
        placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6),
      52, 1), 53, 1), 'hex')::uuid
$$;

-- The least version 7 UUID of a moment: the bound of a partition.
create function pgexec.uuid7_floor(at timestamptz) returns uuid
language sql immutable parallel safe
set search_path = ''
as $$
  select (encode(substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3), 'hex')
    || '00000000000000000000')::uuid
$$;

-- Dollars in billionths, as records have them; 0 for null, and at least 1 for anything else above 0.
create function pgexec.nano_usd(usd numeric) returns bigint
language sql immutable parallel safe
return case when usd > 0 then greatest(least(trunc(usd * 1000000000), 9223372036854775807), 1) else 0 end::bigint;

-- One row a run. It changes a few times in a run's life, never per node.
create table pgexec.runs (
  run_id          uuid primary key default pgexec.uuid7(),
  kind            text not null check (kind <> '' and length(kind) <= 128),
  input           jsonb not null default '{}',
  status          text not null default 'queued'
                  check (status in ('queued', 'running', 'parked', 'paused', 'succeeded', 'failed', 'cancelled')),
  owner           integer,
  epoch           bigint not null default 0,
  -- The run and the node that this run is a part of, and how many runs it is away from the root.
  parent_run_id   uuid,
  parent_node_id  text,
  -- The run whose log this one began with, up to that seq.
  forked_from     uuid,
  forked_at_seq   bigint,
  depth           integer not null default 0,
  max_tokens      bigint check (max_tokens > 0),
  max_cost_usd    numeric check (max_cost_usd > 0 and max_cost_usd < 'infinity'),
  max_nodes       integer check (max_nodes > 0),
  max_wall_ms     bigint check (max_wall_ms > 0),
  deadline        timestamptz check (isfinite(deadline)),
  max_parallel    integer check (max_parallel > 0),
  -- The part of each limit from which on handlers are told that it is near.
  soft_limit      double precision not null default 0.8 check (soft_limit > 0 and soft_limit <= 1),
  -- 1 is the most urgent, 4 the least: River's own scale.
  priority        smallint not null default 2 check (priority between 1 and 4),
  queue           text not null default 'default' check (queue ~ '^[a-z0-9]+([_-][a-z0-9]+)*$' and length(queue) < 128),
  labels          jsonb not null default '{}' check (jsonb_typeof(labels) = 'object'),
  idempotency_key text,
  -- When the run is next due; infinity while it waits for anything but a time.
  run_at          timestamptz not null default now(),
  created_by      text not null default session_user,
  traceparent     text,
  created_at      timestamptz not null default now(),
  started_at      timestamptz,
  finished_at     timestamptz,
  -- What psql shows of the result. The exact bytes are in the log, at result_seq.
  result          jsonb,
  result_seq      bigint,
  error           text,
  -- What it has spent, child runs included, as of its last end or pause.
  input_tokens    bigint not null default 0,
  output_tokens   bigint not null default 0,
  cost_usd        numeric not null default 0,
  nodes_done      bigint not null default 0,
  -- Why the run is paused, or what it waits for.
  reason          text,
  -- What somebody wants of the run, until its owner has done it.
  wanted          text check (wanted in ('pause', 'cancel')),
  wanted_reason   text,
  -- The River job that will look at this run; null when there is none.
  wake_job        bigint,
  -- The version of all that reaches the run from outside: signals, requests, changed limits, ends of
  -- child runs. Whoever adds to that adds to this in the same transaction; a parking statement names the value it saw.
  inbox           bigint not null default 0,
  -- The replica whose death put the run back; null after any other way into the queue.
  orphaned_by     integer,
  -- Kinds of the frontier that the last owner could not run.
  waiting_kinds   text[],
  constraint runs_owned_iff_running check ((owner is not null) = (status = 'running'))
);

create unique index runs_idempotency_key on pgexec.runs (idempotency_key) where idempotency_key is not null;
create index runs_owner on pgexec.runs (owner) where owner is not null;
-- Runs that have a time but no wake yet; those with a wake, found by its job; those that wait for a kind.
create index runs_due on pgexec.runs (run_at) where status in ('queued', 'parked') and wake_job is null and waiting_kinds is null;
create index runs_wake_job on pgexec.runs (wake_job) where wake_job is not null;
create index runs_waiting on pgexec.runs (run_at) where status = 'queued' and wake_job is null and waiting_kinds is not null;
create index runs_parent on pgexec.runs (parent_run_id, parent_node_id) where parent_run_id is not null;

-- The log: the source of truth. Primary key and head check are the fence.
create table pgexec.run_log (
  run_id uuid not null,
  seq    bigint not null check (seq > 0),
  record bytea not null,
  primary key (run_id, seq)
) partition by range (run_id);

-- Records over the TOAST threshold go out of line uncompressed: a log is written once and read once.
alter table pgexec.run_log alter column record set storage external;

-- Ids that are not of a span with a partition of its own, those that are not time-ordered among them.
create table pgexec.run_log_default partition of pgexec.run_log default;

-- Makes the weekly partitions from this week to some weeks ahead; returns how many it made.
-- A week whose partition cannot be made at once is left to the next call, and its ids live in the
-- default partition, where they work as well. That is so
--   * while somebody holds the default partition, say a long reader: attaching locks it exclusively,
--     and all appends would queue behind this call for as long as it waits, so it waits briefly and gives up;
--   * when the default partition holds ids of that week already, or is so large that looking through it
--     under that lock would stop appends.
create function pgexec.ensure_partitions(weeks_ahead integer default 4) returns integer
language plpgsql volatile security definer
set search_path = ''
set timezone = 'UTC'
set lock_timeout = '100ms'
as $$
declare
  made integer := 0;
  week timestamptz;
  lower_bound uuid;
  upper_bound uuid;
  part text;
begin
  if not pg_try_advisory_xact_lock(1885824376, 0) then
    return 0;
  end if;
  for i in 0 .. least(weeks_ahead, 52) loop
    week := date_trunc('week', clock_timestamp()) + i * interval '7 days';
    lower_bound := pgexec.uuid7_floor(week);
    upper_bound := pgexec.uuid7_floor(week + interval '7 days');
    part := 'run_log_' || to_char(week, 'YYYYMMDD');
    continue when to_regclass('pgexec.' || part) is not null;
    begin
      continue when pg_relation_size('pgexec.run_log_default') > 256 * 1024 * 1024
        or exists (select from pgexec.run_log_default d where d.run_id >= lower_bound and d.run_id < upper_bound);
      execute format('create table pgexec.%I (like pgexec.run_log including defaults including constraints including storage)', part);
      execute format('alter table pgexec.run_log attach partition pgexec.%I for values from (%L) to (%L)',
        part, lower_bound, upper_bound);
      made := made + 1;
    exception
      when lock_not_available then
        exit;
      when check_violation or invalid_object_definition then
        null;  -- An id of that week came in since we looked, or somebody made partitions of other spans.
    end;
  end loop;
  return made;
end
$$;
revoke execute on function pgexec.ensure_partitions(integer) from public;

select pgexec.ensure_partitions();

-- Whether the owner of an epoch may append after record head: the head is there, and the run is still its.
-- Plain reads in the calling statement's snapshot; what commits after it is stopped by the log's primary key.
-- Its statements are planned once a session and by key, whatever the size of the tables at that moment:
-- a plan made when they were small would scan them when they have grown.
create function pgexec.may_append(run uuid, head bigint, replica integer, run_epoch bigint) returns boolean
language plpgsql stable
set search_path = ''
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
  -- The owner is compared outside of the WHERE, so that only the primary key can find the row.
  return coalesce((select r.owner = replica and r.epoch = run_epoch from pgexec.runs r where r.run_id = run), false)
    and exists (select from pgexec.run_log l where l.run_id = run and l.seq = head);
end
$$;

-- Those of many runs of which may_append is true.
create function pgexec.may_append(run_ids uuid[], heads bigint[], replicas integer[], epochs bigint[]) returns setof uuid
language plpgsql stable
set search_path = ''
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  select w.run_id from unnest(run_ids, heads, replicas, epochs) w (run_id, head, replica, epoch)
  where (select r.owner = w.replica and r.epoch = w.epoch from pgexec.runs r where r.run_id = w.run_id)
    and (select true from pgexec.run_log l where l.run_id = w.run_id and l.seq = w.head);
end
$$;

-- The durable inbox: what was sent to a run, consumed or not.
create table pgexec.signals (
  signal_id  bigint generated always as identity primary key,
  run_id     uuid not null,
  name       text not null check (name <> ''),
  -- The waiting node it is meant for; null for any wait of that name.
  node_id    text,
  payload    jsonb not null default 'null',
  dedupe_key text,
  created_at timestamptz not null default now(),
  created_by text not null default session_user,
  -- A hint that saves reading it again: what the run has consumed is in its log.
  consumed_at timestamptz,
  unique (run_id, dedupe_key)
);
create index signals_unconsumed on pgexec.signals (run_id, signal_id) where consumed_at is null;

-- Who lives. A row is true only while its session holds the replica's advisory lock.
create table pgexec.replicas (
  replica_id    integer primary key check (replica_id > 0),
  host          text not null,
  pid           integer not null,
  version       text not null,
  kinds         text[] not null,
  queues        text[] not null,
  max_hot_runs  integer not null,
  hot_runs      integer not null default 0,
  draining      boolean not null default false,
  -- The session that holds the replica's advisory lock ('pgex' as integer, replica_id).
  backend_pid   integer not null,
  backend_start timestamptz not null,
  started_at    timestamptz not null default clock_timestamp(),
  heartbeat_at  timestamptz not null default clock_timestamp()
);

-- Adds one wake job for each given run that is parked, or queued and due, and has none outstanding, and
-- notifies River once for each queue. The run's row carries the job's id, so that a run
-- has at most one outstanding wake.
create function pgexec.wake_runs(run_ids uuid[]) returns integer
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  woken integer;
  queues text[];
begin
  with due as (
    select r.run_id from pgexec.runs r
    where r.run_id = any (run_ids) and r.wake_job is null
      and (r.status = 'parked' or (r.status = 'queued' and r.run_at <= clock_timestamp()))
    order by r.depth, r.run_id
    for no key update
  ), marked as (
    update pgexec.runs r set wake_job = nextval('pgexec.river_job_id_seq')
    from due where r.run_id = due.run_id and r.wake_job is null
    returning r.run_id, r.wake_job, r.queue, r.priority
  ), jobs as (
    insert into pgexec.river_job (id, args, kind, queue, priority, max_attempts)
    select wake_job, jsonb_build_object('run_id', run_id), 'pgexec_wake', queue, priority, 25
    from marked
    returning queue
  )
  select count(*), array_agg(distinct queue) into woken, queues from jobs;
  if woken > 0 and coalesce(current_setting('pgexec.notify_on_insert', true), 'on') <> 'off' then
    perform pg_notify('pgexec.river_insert', json_build_object('queue', q.queue)::text)
    from unnest(queues) q (queue);
  end if;
  return woken;
end
$$;
revoke execute on function pgexec.wake_runs(uuid[]) from public;

-- What a caller may not choose is set here: a new run is queued, free, and has its wake's id when it is due.
-- A child run is made by who runs its parent: whoever may only insert cannot put a run into another one's tree.
create function pgexec.runs_before_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  if new.parent_run_id is null then
    new.parent_node_id := null;
    new.depth := 0;
    new.created_by := session_user;
  elsif not has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), 'pgexec.runs', 'update') then
    raise exception 'parent_run_id is set by the runtime: a node of kind "run" starts a child run'
      using errcode = 'insufficient_privilege';
  else
    -- Everybody who locks several rows of a tree relies on it: a child is one deeper than its parent.
    select p.depth + 1 into new.depth from pgexec.runs p where p.run_id = new.parent_run_id;
    if not found then
      raise exception 'parent run % does not exist', new.parent_run_id using errcode = 'foreign_key_violation';
    end if;
  end if;
  new.run_id := coalesce(new.run_id, pgexec.uuid7());
  new.status := 'queued';
  new.owner := null;
  new.epoch := 0;
  new.inbox := 0;
  new.forked_from := null;
  new.forked_at_seq := null;
  new.orphaned_by := null;
  new.waiting_kinds := null;
  new.result := null;
  new.result_seq := null;
  new.error := null;
  new.reason := null;
  new.wanted := null;
  new.wanted_reason := null;
  new.input_tokens := 0;
  new.output_tokens := 0;
  new.cost_usd := 0;
  new.nodes_done := 0;
  new.started_at := null;
  new.finished_at := null;
  new.created_at := now();
  new.wake_job := case when new.run_at <= clock_timestamp() then nextval('pgexec.river_job_id_seq') end;
  return new;
end
$$;
create trigger runs_before_insert before insert on pgexec.runs
  for each row execute function pgexec.runs_before_insert();

-- The wake jobs of new runs, in the caller's own transaction, with one notification for each queue.
create function pgexec.runs_after_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  insert into pgexec.river_job (id, args, kind, queue, priority, max_attempts)
  select wake_job, jsonb_build_object('run_id', run_id), 'pgexec_wake', queue, priority, 25
  from new_runs where wake_job is not null;
  if found and coalesce(current_setting('pgexec.notify_on_insert', true), 'on') <> 'off' then
    perform pg_notify('pgexec.river_insert', json_build_object('queue', q.queue)::text)
    from (select distinct queue from new_runs where wake_job is not null) q;
  end if;
  return null;
end
$$;
create trigger runs_after_insert after insert on pgexec.runs
  referencing new table as new_runs
  for each statement execute function pgexec.runs_after_insert();

create function pgexec.signals_before_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  new.created_at := now();
  new.created_by := session_user;
  new.consumed_at := null;
  return new;
end
$$;
create trigger signals_before_insert before insert on pgexec.signals
  for each row execute function pgexec.signals_before_insert();

-- Tells the owners of running runs that something has reached them. It is a hint: owners also look by
-- themselves, twice a second. A notification has the ids of at most 200 runs, which is below its 8,000 bytes.
create function pgexec.tell_owners(run_ids uuid[]) returns void
language plpgsql volatile security definer
set search_path = ''
as $$
begin
  if coalesce(current_setting('pgexec.notify_on_insert', true), 'on') <> 'off' then
    perform pg_notify('pgexec_control', string_agg(u.run_id::text, ','))
    from unnest(run_ids) with ordinality u (run_id, n)
    group by (n - 1) / 200;
  end if;
end
$$;
revoke execute on function pgexec.tell_owners(uuid[]) from public;

-- A signal changes its run's row (inbox), so that a parking statement that did not see the signal
-- finds another row version; a parked run is woken in the same transaction, a running one's owner is told.
-- A run that does not exist or has ended refuses it. The rows are locked in the order in which everybody
-- locks several: from the root of a tree down, then by id.
create function pgexec.signals_after_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
declare
  unknown uuid;
  ended text;
  unowned uuid[];
  owned uuid[];
begin
  with sent as materialized (
    select s.run_id, count(*) as n from new_signals s group by s.run_id
  ), locked as materialized (
    select r.run_id from pgexec.runs r
    where r.run_id in (select s.run_id from sent s)
    order by r.depth, r.run_id
    for no key update
  ), changed as (
    update pgexec.runs r set inbox = r.inbox + s.n
    from locked l join sent s on s.run_id = l.run_id
    where r.run_id = l.run_id
    returning r.run_id, r.status
  )
  select (select s.run_id from sent s where s.run_id not in (select c.run_id from changed c) limit 1),
    (select 'run ' || c.run_id || ' has already ' || case c.status when 'cancelled' then 'been cancelled' else c.status end
      from changed c where c.status in ('succeeded', 'failed', 'cancelled') limit 1),
    array(select c.run_id from changed c where c.status in ('queued', 'parked')),
    array(select c.run_id from changed c where c.status = 'running')
  into unknown, ended, unowned, owned;
  if unknown is not null then
    raise exception 'run % does not exist: a signal needs a run', unknown
      using errcode = 'foreign_key_violation';
  end if;
  if ended is not null then
    raise exception '%: a signal can reach it no more', ended
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  perform pgexec.wake_runs(unowned);
  perform pgexec.tell_owners(owned);
  return null;
end
$$;
create trigger signals_after_insert after insert on pgexec.signals
  referencing new table as new_signals
  for each statement execute function pgexec.signals_after_insert();
