-- Work for programs outside: a node of a declared kind is done by any program that can call these functions.
--
-- A task is a copy of what the log says is to be done, and its end is a message to the run, as a signal is: the log
-- alone says what was done. Whoever ends a task locks its run's row first and then the task, adds to inbox, and
-- wakes a run that is free or tells its owner; so do the runs that end or pause. Who takes tasks locks them first and
-- therefore waits for no run's row. Leases are measured by the database's clock.

-- The kinds that programs outside do. A kind that is here is theirs, also where a replica has a handler of that name.
create table pgexec.task_kinds (
  kind            text primary key check (kind <> '' and octet_length(kind) <= 128 and kind not in ('sleep', 'signal', 'run', 'approval')),
  -- How often a task that failed is tried, the first time included, and the waits in between, as for any kind.
  max_attempts    integer not null default 5 check (max_attempts > 0),
  min_backoff     interval not null default '500 ms' check (min_backoff >= '0' and min_backoff <= '1 year'),
  max_backoff     interval not null default '1 minute' check (max_backoff >= min_backoff and max_backoff <= '1 year'),
  -- How many leases of one attempt may expire before the task fails: it seems to be what its workers die of.
  max_lost_leases integer not null default 5 check (max_lost_leases > 0)
);

-- Whether programs outside have ever got a task of the run: whoever ends one that had none has nothing to do for them.
alter table pgexec.runs add column has_tasks boolean not null default false;

-- One row a node that programs outside are to do, and that is not yet recorded.
create table pgexec.tasks (
  -- Another one for each attempt.
  task_id      bigint generated always as identity primary key,
  run_id       uuid not null,
  node_id      text not null,
  kind         text not null,
  attempt      integer not null,
  -- JSON text, byte for byte as the run's log has it.
  input        json not null,
  -- That of the run: 1 is the most urgent.
  priority     smallint not null,
  -- What the limits of its kind are counted by.
  limit_key    text not null default '',
  -- Nobody may do it twice: a lease that expired leaves its outcome unknown.
  at_most_once boolean not null,
  state        text not null default 'waiting' check (state in ('waiting', 'taken', 'succeeded', 'failed')),
  created_at   timestamptz not null default clock_timestamp(),
  -- Who took it last, when, and until when nobody else may. A lease that has expired can be taken by anybody.
  worker       text,
  taken_at     timestamptz,
  lease_until  timestamptz,
  -- How often it was taken and not given back.
  deliveries   integer not null default 0,
  ended_at     timestamptz,
  output       json,
  error        text,
  -- A short stable word for programs: "error", "lost_leases", "outcome_unknown", "undeclared".
  error_code   text,
  permanent    boolean not null default false,
  retry_after  interval,
  unique (run_id, node_id),
  constraint tasks_taken_has_lease check (state <> 'taken' or (worker is not null and lease_until is not null))
);
-- Those that can be taken, the oldest first: new ones and those whose lease has expired.
create index tasks_due on pgexec.tasks (kind, priority, (coalesce(lease_until, created_at))) where state in ('waiting', 'taken');
create index tasks_ended on pgexec.tasks (run_id) where state in ('succeeded', 'failed');

-- Has a kind done by programs outside, or changes how. It needs the right to write the table: who declares a kind takes it
-- from the replicas.
create function pgexec.declare_kind(kind text, max_attempts integer default 5, min_backoff interval default '500 ms',
  max_backoff interval default '1 minute', max_lost_leases integer default 5)
returns void
language sql volatile
set search_path = ''
as $$
  insert into pgexec.task_kinds (kind, max_attempts, min_backoff, max_backoff, max_lost_leases)
  values (declare_kind.kind, declare_kind.max_attempts, declare_kind.min_backoff, declare_kind.max_backoff, declare_kind.max_lost_leases)
  on conflict on constraint task_kinds_pkey do update
  set max_attempts = excluded.max_attempts, min_backoff = excluded.min_backoff, max_backoff = excluded.max_backoff,
    max_lost_leases = excluded.max_lost_leases
$$;

-- A run that ends leaves no task; one that pauses keeps those that somebody is doing, and makes the others anew when it
-- goes on. No lock is waited for: a task that somebody is just taking is removed when replicas keep house.
create function pgexec.runs_after_stop() returns trigger
language plpgsql security definer
set search_path = ''
set enable_seqscan = off
as $$
begin
  delete from pgexec.tasks t
  where t.task_id in (
    select s.task_id from pgexec.tasks s
    where s.run_id = new.run_id and (new.status <> 'paused' or s.state = 'waiting')
    for update skip locked);
  return null;
end
$$;
create trigger runs_after_stop after update of status on pgexec.runs
  for each row when (new.has_tasks and new.status in ('paused', 'succeeded', 'failed', 'cancelled') and old.status <> new.status)
  execute function pgexec.runs_after_stop();

-- A run may be parked until its tasks have ended, with nodes that a limit holds: a higher limit wakes it.
create function pgexec.runs_after_limit() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.wake_runs(array[new.run_id]);
  return null;
end
$$;
create trigger runs_after_limit after update of max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline on pgexec.runs
  for each row when (new.has_tasks and new.status = 'parked')
  execute function pgexec.runs_after_limit();

-- Tells runs, whose rows the caller has locked, that tasks of theirs have ended.
create function pgexec.tell_of_tasks(run_ids uuid[]) returns void
language plpgsql volatile
set search_path = ''
as $$
declare
  unowned uuid[];
  owned uuid[];
begin
  with changed as (
    update pgexec.runs r set inbox = r.inbox + 1 where r.run_id = any (run_ids) returning r.run_id, r.status
  )
  select array(select c.run_id from changed c where c.status in ('queued', 'parked')),
    array(select c.run_id from changed c where c.status = 'running')
  into unowned, owned;
  perform pgexec.wake_runs(unowned);
  perform pgexec.tell_owners(owned);
end
$$;
revoke execute on function pgexec.tell_of_tasks(uuid[]) from public;

-- Ends the tasks of kinds that are not declared any more: their nodes are again those of replicas. A node that may be done
-- once only, and that a worker has begun, stays its until the lease is over; then its outcome is unknown.
create function pgexec.end_undeclared_tasks() returns void
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  run_ids uuid[];
begin
  run_ids := array(
    select t.run_id from pgexec.tasks t
    where t.state in ('waiting', 'taken') and not (t.state = 'taken' and t.at_most_once and t.lease_until > clock_timestamp())
      and not exists (select from pgexec.task_kinds k where k.kind = t.kind));
  if run_ids = '{}' then
    return;
  end if;
  perform from pgexec.runs r where r.run_id = any (run_ids) order by r.depth, r.run_id for no key update;
  with ended as (
    update pgexec.tasks t
    set state = 'failed', ended_at = clock_timestamp(), permanent = true,
      error_code = case when t.state = 'taken' and t.at_most_once then 'outcome_unknown' else 'undeclared' end,
      error = 'the kind is not declared any more'
    where t.run_id = any (run_ids) and t.state in ('waiting', 'taken') and not (t.state = 'taken' and t.at_most_once and t.lease_until > clock_timestamp())
      and not exists (select from pgexec.task_kinds k where k.kind = t.kind)
    returning t.run_id
  )
  select array(select distinct e.run_id from ended e) into run_ids;
  perform pgexec.tell_of_tasks(run_ids);
end
$$;
revoke execute on function pgexec.end_undeclared_tasks() from public;

create function pgexec.task_kinds_after_delete() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.end_undeclared_tasks();
  return null;
end
$$;
create trigger task_kinds_after_delete after delete on pgexec.task_kinds
  for each statement execute function pgexec.task_kinds_after_delete();

-- Ends those of some tasks, locked by the caller and with leases that have expired, that may not be taken again; returns
-- them. One whose run somebody else has locked is left for a second.
create function pgexec.end_lost_tasks(task_ids bigint[]) returns bigint[]
language plpgsql volatile
set search_path = ''
as $$
declare
  lost bigint[];
  free uuid[];
begin
  lost := array(
    select t.task_id from pgexec.tasks t
    -- "is not distinct from" keeps the index of all that can be taken out of it.
    where t.task_id = any (task_ids) and t.state is not distinct from 'taken'
      and (t.at_most_once or t.deliveries >= (select k.max_lost_leases from pgexec.task_kinds k where k.kind = t.kind)));
  if lost = '{}' then
    return lost;
  end if;
  free := array(
    select r.run_id from pgexec.runs r
    where r.run_id in (select t.run_id from pgexec.tasks t where t.task_id = any (lost))
    order by r.run_id
    for no key update skip locked);
  update pgexec.tasks t
  set state = 'failed', ended_at = clock_timestamp(), permanent = true,
    error_code = case when t.at_most_once then 'outcome_unknown' else 'lost_leases' end,
    error = case
      when t.at_most_once then format('the lease of worker %s expired at %s: whether the task took effect is not known', t.worker, t.lease_until)
      else format('the leases of %s workers in a row expired, the last one that of %s at %s: perhaps the task is what they died of', t.deliveries, t.worker, t.lease_until)
    end
  where t.task_id = any (lost) and t.run_id = any (free);
  update pgexec.tasks t set lease_until = clock_timestamp() + interval '1 second'
  where t.task_id = any (lost) and t.run_id <> all (free);
  perform pgexec.tell_of_tasks(free);
  return lost;
end
$$;
revoke execute on function pgexec.end_lost_tasks(bigint[]) from public;

-- Those tasks of a kind that can be taken, at most so many, locked: of the most urgent runs first and then the oldest,
-- without those of runs that have ended, are paused, or are to. What others have locked is left to them.
create function pgexec.lock_due_tasks(task_kind text, most integer) returns bigint[]
language plpgsql volatile
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  at timestamptz := clock_timestamp();
  due bigint[] := '{}';
begin
  for urgency in 1 .. 4 loop
    due := due || array(
      select t.task_id
      from pgexec.tasks t
      where t.kind = task_kind and t.priority = urgency and t.state in ('waiting', 'taken')
        and coalesce(t.lease_until, t.created_at) <= at
        and (select r.status in ('queued', 'running', 'parked') and r.wanted is null from pgexec.runs r where r.run_id = t.run_id)
      order by coalesce(t.lease_until, t.created_at)
      limit most - cardinality(due)
      for update of t skip locked);
    exit when cardinality(due) = most;
  end loop;
  return due;
end
$$;
revoke execute on function pgexec.lock_due_tasks(text, integer) from public;

-- Those that can be taken under the limits of the kind; there are none yet.
create function pgexec.lock_allowed_tasks(task_kind text, most integer) returns bigint[]
language sql volatile
set search_path = ''
as $$
  select pgexec.lock_due_tasks(task_kind, most)
$$;
revoke execute on function pgexec.lock_allowed_tasks(text, integer) from public;

-- Whether the lease of a task, which has expired, may be renewed under the limits of its kind; there are none yet.
create function pgexec.may_renew_lapsed(id bigint) returns boolean
language sql volatile
set search_path = ''
as $$
  select true
$$;
revoke execute on function pgexec.may_renew_lapsed(bigint) from public;

-- A lease that cannot be is refused.
create function pgexec.check_lease(lease interval, shortest interval) returns void
language plpgsql immutable
set search_path = ''
as $$
begin
  if (lease >= shortest and lease <= interval '1 year') is not true then
    raise exception 'the lease is %: want a lease above 0, of at most a year', coalesce(lease::text, 'null')
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
revoke execute on function pgexec.check_lease(interval, interval) from public;

-- Takes tasks of a kind for a worker, each until the end of its lease: then anybody may take it again. That is no failed
-- attempt; a task whose leases were lost too often fails when it would be taken once more.
create function pgexec.take(kind text, worker text, lease interval default '1 minute', max_tasks integer default 1)
returns table (task_id bigint, run_id uuid, node_id text, attempt integer, input json, idempotency_key text,
  lease_until timestamptz, deliveries integer)
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  due bigint[];
  ended bigint[];
begin
  if coalesce(take.worker, '') = '' then
    raise exception 'a worker needs a name of its own' using errcode = 'invalid_parameter_value';
  elsif (take.max_tasks between 1 and 1000) is not true then
    raise exception 'max_tasks is %: want 1 to 1000', coalesce(take.max_tasks::text, 'null') using errcode = 'invalid_parameter_value';
  elsif not exists (select from pgexec.task_kinds k where k.kind = take.kind) then
    raise exception 'kind % is not declared: programs outside do those in pgexec.task_kinds', take.kind
      using errcode = 'invalid_parameter_value', hint = format('select pgexec.declare_kind(%L)', take.kind);
  end if;
  perform pgexec.check_lease(take.lease, '1 microsecond');
  loop
    due := pgexec.lock_allowed_tasks(take.kind, take.max_tasks);
    ended := pgexec.end_lost_tasks(due);
    exit when due = '{}' or ended <> due;
  end loop;
  return query
  update pgexec.tasks t
  set state = 'taken', worker = take.worker, taken_at = clock_timestamp(), lease_until = clock_timestamp() + take.lease,
    deliveries = t.deliveries + 1
  where t.task_id = any (due) and t.task_id <> all (ended)
  returning t.task_id, t.run_id, t.node_id, t.attempt, t.input, t.run_id || '/' || t.node_id, t.lease_until, t.deliveries;
end
$$;

-- Locks a task that a worker is to end, and its run before it; null when it is gone: its run has ended or is to, or what
-- came of it is recorded. An error when it is not the worker's.
create function pgexec.lock_task(id bigint, holder text) returns pgexec.tasks
language plpgsql volatile
set search_path = ''
as $$
declare
  task pgexec.tasks;
begin
  perform from pgexec.runs r
  where r.run_id = (select t.run_id from pgexec.tasks t where t.task_id = id) and r.finished_at is null and r.wanted is distinct from 'cancel'
  for no key update;
  if found then
    select * into task from pgexec.tasks t where t.task_id = id for update;
  elsif id not between 1 and (select s.last_value from pgexec.tasks_task_id_seq s) then
    raise exception 'task % does not exist', id using errcode = 'invalid_parameter_value';
  end if;
  if task.task_id is not null and (task.state = 'waiting' or task.worker is distinct from holder) then
    raise exception 'task % is not that of worker %: %', id, coalesce(holder, 'null'),
      coalesce(task.worker || ' took it at ' || task.taken_at, 'nobody has taken it')
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  return task;
end
$$;
revoke execute on function pgexec.lock_task(bigint, text) from public;

-- Ends a task with its output. True when it counts, also when that was said before by the same worker; false when the task
-- is gone: its run has ended or is to, or what came of the task is recorded. An error when another worker took it. A
-- lease that has expired does not matter as long as nobody else took the task.
create function pgexec.complete(task_id bigint, worker text, output json default 'null') returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  task pgexec.tasks := pgexec.lock_task(complete.task_id, complete.worker);
begin
  if task.task_id is null or task.state = 'succeeded' then
    return task.task_id is not null;
  elsif task.state = 'failed' then
    raise exception 'task % has failed already: %', task.task_id, task.error using errcode = 'object_not_in_prerequisite_state';
  end if;
  update pgexec.tasks t
  set state = 'succeeded', ended_at = clock_timestamp(), output = coalesce(complete.output, 'null')
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;

-- Ends an attempt with an error. The node is tried again by the policy of its kind, or no earlier than after retry_after;
-- a permanent error fails it at once. The answer is that of pgexec.complete.
create function pgexec.fail(task_id bigint, worker text, error text, permanent boolean default false, retry_after interval default null)
returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  task pgexec.tasks := pgexec.lock_task(fail.task_id, fail.worker);
begin
  if task.task_id is null or task.state = 'failed' then
    return task.task_id is not null;
  elsif task.state = 'succeeded' then
    raise exception 'task % has succeeded already', task.task_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  update pgexec.tasks t
  set state = 'failed', ended_at = clock_timestamp(), error = coalesce(fail.error, ''), error_code = 'error',
    permanent = coalesce(fail.permanent, false), retry_after = fail.retry_after
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;

-- Renews a lease and returns its new end; null tells the worker to stop: the task is gone, or another worker took it, or
-- its lease has expired and others are in flight now, as many as the limit of the kind. A lease of 0 gives the task back, to be taken by anybody at once, as if it had not been taken.
create function pgexec.extend(task_id bigint, worker text, lease interval default '1 minute') returns timestamptz
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  back constant boolean := extend.lease = '0';
  lapsed boolean;
  renewed pgexec.tasks;
begin
  perform pgexec.check_lease(extend.lease, '0');
  lapsed := not back and pgexec.may_renew_lapsed(extend.task_id);
  update pgexec.tasks t
  set lease_until = case when not back then clock_timestamp() + extend.lease end,
    state = case when back then 'waiting' else 'taken' end,
    worker = case when not back then t.worker end,
    deliveries = t.deliveries - back::integer
  where (back or lapsed or t.lease_until > clock_timestamp())
    and t.task_id = extend.task_id and t.worker = extend.worker and t.state = 'taken'
    and exists (select from pgexec.runs r where r.run_id = t.run_id and r.finished_at is null and r.wanted is distinct from 'cancel')
  returning t.* into renewed;
  if renewed.state = 'waiting' then
    perform pg_notify('pgexec_task', renewed.kind);
  elsif renewed.task_id is null and extend.task_id not between 1 and (select s.last_value from pgexec.tasks_task_id_seq s) then
    raise exception 'task % does not exist', extend.task_id using errcode = 'invalid_parameter_value';
  end if;
  return renewed.lease_until;
end
$$;
