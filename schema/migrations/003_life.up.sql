-- What people and applications ask of runs: signal, cancel, pause, resume, retry.
--
-- Each function locks the rows it changes, from the named run down and level by level, by id within a level: so do
-- the signals of one statement, and whatever does not keep to that order waits for no lock. A child run is made
-- under a lock of its parent's row that these wait for, and only while nothing is wanted of the parent: what goes
-- down a tree misses no child. Each change adds to inbox, wakes a run that is free, and tells the owner of one that is not.
--
-- Whoever may use the schema may call them.

-- Sends a message to a run and returns the signal's id. With a dedupe key that the run has had before, nothing is sent
-- and the first signal's id comes back.
create function pgexec.signal(run_id uuid, name text, payload jsonb default 'null', node_id text default null, dedupe_key text default null)
returns bigint
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  id bigint;
begin
  insert into pgexec.signals (run_id, name, payload, node_id, dedupe_key)
  values (signal.run_id, signal.name, coalesce(signal.payload, 'null'), signal.node_id, signal.dedupe_key)
  on conflict on constraint signals_run_id_dedupe_key_key do nothing
  returning signal_id into id;
  if id is null then
    select s.signal_id into id from pgexec.signals s
    where s.run_id = signal.run_id and s.dedupe_key = signal.dedupe_key;
  end if;
  return id;
end
$$;

-- Locks the run that one of the functions below names, and returns its row.
create function pgexec.lock_named_run(run uuid) returns pgexec.runs
language plpgsql volatile
set search_path = ''
as $$
declare
  found_run pgexec.runs;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a tree of runs can be changed only in a transaction that is read committed: this one''s snapshot may lack child runs'
      using errcode = 'feature_not_supported';
  end if;
  select * into found_run from pgexec.runs r where r.run_id = run for update;
  if not found then
    raise exception 'run % does not exist', run using errcode = 'foreign_key_violation';
  end if;
  return found_run;
end
$$;
revoke execute on function pgexec.lock_named_run(uuid) from public;

-- Locks those of some runs that have not ended.
create function pgexec.lock_level(run_ids uuid[]) returns void
language sql volatile
set search_path = ''
as $$
  select from pgexec.runs r
  where r.run_id = any (run_ids) and r.status in ('queued', 'running', 'parked', 'paused')
  order by r.run_id
  for update
$$;
revoke execute on function pgexec.lock_level(uuid[]) from public;

-- Asks for the end of a run and of all runs below it, whatever they are doing. The answer is "cancelling", or
-- "already succeeded", "already failed" or "already cancelled", and then nothing has changed, not even below.
create function pgexec.cancel(run_id uuid, reason text default null) returns text
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  named pgexec.runs := pgexec.lock_named_run(cancel.run_id);
  level uuid[] := array[cancel.run_id];
  unowned uuid[];
  owned uuid[];
begin
  if named.status in ('succeeded', 'failed', 'cancelled') then
    return 'already ' || named.status;
  end if;
  while cardinality(level) > 0 loop
    perform pgexec.lock_level(level);
    with changed as (
      update pgexec.runs r
      set wanted = 'cancel', inbox = r.inbox + 1,
        wanted_reason = case when r.wanted = 'cancel' then r.wanted_reason else cancel.reason end,
        status = case when r.owner is null then 'queued' else r.status end,
        run_at = least(r.run_at, clock_timestamp()),
        waiting_kinds = null
      where r.run_id = any (level) and r.status in ('queued', 'running', 'parked', 'paused')
      returning r.run_id, r.owner
    )
    select array(select c.run_id from changed c where c.owner is null),
      array(select c.run_id from changed c where c.owner is not null)
    into unowned, owned;
    perform pgexec.wake_runs(unowned);
    perform pgexec.tell_owners(owned);
    level := array(select c.run_id from pgexec.runs c where c.parent_run_id = any (level));
  end loop;
  return 'cancelling';
end
$$;

-- Stops a run and all runs below it between nodes: what is in flight finishes and is recorded. The answer, about the
-- named run, is "paused", or "pausing" while an owner has nodes in flight; "already paused"; "cancelling" when
-- its end is wanted; or "already succeeded" and the like. Only the last two leave the runs below as they are.
create function pgexec.pause(run_id uuid, reason text default null) returns text
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  named pgexec.runs := pgexec.lock_named_run(pause.run_id);
  level uuid[] := array[pause.run_id];
  owned uuid[];
begin
  if named.status in ('succeeded', 'failed', 'cancelled') then
    return 'already ' || named.status;
  elsif named.wanted = 'cancel' then
    return 'cancelling';
  end if;
  while cardinality(level) > 0 loop
    perform pgexec.lock_level(level);
    update pgexec.runs r
    set status = 'paused', reason = 'paused' || coalesce(': ' || pause.reason, ''), inbox = r.inbox + 1,
      wanted = null, wanted_reason = null, wake_job = null, waiting_kinds = null
    where r.run_id = any (level) and r.status in ('queued', 'parked') and r.wanted is distinct from 'cancel';
    with changed as (
      update pgexec.runs r
      set wanted = 'pause', wanted_reason = pause.reason, inbox = r.inbox + 1
      where r.run_id = any (level) and r.status = 'running' and r.wanted is distinct from 'cancel'
      returning r.run_id
    )
    select array(select c.run_id from changed c) into owned;
    perform pgexec.tell_owners(owned);
    level := array(select c.run_id from pgexec.runs c where c.parent_run_id = any (level));
  end loop;
  return case named.status when 'paused' then 'already paused' when 'running' then 'pausing' else 'paused' end;
end
$$;

-- Continues a run, and all paused runs below it, where they stopped, and raises limits. What is added goes to the
-- named run and to every run below it, each where it has that limit and has not ended: a child's limits are
-- what its parent had left, and so they stay. A deadline is moved, never forward in time to an earlier one.
-- The answer is "resumed" when any run was paused or about to be; else "limits raised" when any was; else
-- "already running" and the like; "cancelling" when the named run's end is wanted.
create function pgexec.resume(run_id uuid, add_tokens bigint default null, add_cost_usd numeric default null,
  add_nodes integer default null, add_wall_ms bigint default null, deadline timestamptz default null)
returns text
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  named pgexec.runs := pgexec.lock_named_run(resume.run_id);
  level uuid[] := array[resume.run_id];
  resumed boolean := false;
  raised boolean := false;
  unowned uuid[];
  owned uuid[];
begin
  if least(add_tokens, add_cost_usd, add_nodes, add_wall_ms) < 0 then
    raise exception 'limits are raised, not lowered: what is added is not negative'
      using errcode = 'invalid_parameter_value';
  end if;
  if named.status in ('succeeded', 'failed', 'cancelled') then
    return 'already ' || named.status;
  elsif named.wanted = 'cancel' then
    return 'cancelling';
  end if;
  while cardinality(level) > 0 loop
    perform pgexec.lock_level(level);
    with found as materialized (
      select r.run_id, r.owner, r.status = 'paused' as was_paused, r.status = 'paused' or coalesce(r.wanted = 'pause', false) as goes_on,
        coalesce(add_tokens > 0 and r.max_tokens is not null, false)
          or coalesce(add_cost_usd > 0 and r.max_cost_usd is not null, false)
          or coalesce(add_nodes > 0 and r.max_nodes is not null, false)
          or coalesce(add_wall_ms > 0 and r.max_wall_ms is not null, false)
          or coalesce(resume.deadline > r.deadline, false) as gets_more
      from pgexec.runs r
      where r.run_id = any (level) and r.status in ('queued', 'running', 'parked', 'paused') and r.wanted is distinct from 'cancel'
    ), changed as (
      update pgexec.runs r
      set inbox = r.inbox + 1,
        max_tokens = r.max_tokens + coalesce(add_tokens, 0),
        max_cost_usd = r.max_cost_usd + coalesce(add_cost_usd, 0),
        max_nodes = r.max_nodes + coalesce(add_nodes, 0),
        max_wall_ms = r.max_wall_ms + coalesce(add_wall_ms, 0),
        deadline = case when resume.deadline > r.deadline then resume.deadline else r.deadline end,
        wanted = null, wanted_reason = null,
        status = case when f.was_paused then 'queued' else r.status end,
        run_at = case when f.was_paused then clock_timestamp() else r.run_at end,
        reason = case when f.was_paused then null else r.reason end
      from found f
      where r.run_id = f.run_id and (f.goes_on or f.gets_more)
      returning f.*
    )
    select array(select c.run_id from changed c where c.was_paused),
      array(select c.run_id from changed c where c.owner is not null),
      resumed or exists (select from changed c where c.goes_on),
      raised or exists (select from changed c where c.gets_more)
    into unowned, owned, resumed, raised;
    perform pgexec.wake_runs(unowned);
    perform pgexec.tell_owners(owned);
    level := array(select c.run_id from pgexec.runs c where c.parent_run_id = any (level));
  end loop;
  return case when resumed then 'resumed' when raised then 'limits raised' else 'already ' || named.status end;
end
$$;

-- The nodes of some runs whose failure an all-done node sees, directly or through nodes that were skipped
-- because of it: a retry does not run them again. It decodes the runs' logs.
create function pgexec.handled_failures(run_ids uuid[]) returns table (run_id uuid, node_id text)
language sql stable
set search_path = ''
as $$
  with recursive nodes as materialized (
    select l.run_id, l.seq, d.rec -> 'node' as node
    from pgexec.run_log l
    cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
    where l.run_id = any (run_ids) and substring(l.record from 1 for 1) = '\x0a'
  ), successors as materialized (
    select n.run_id, p.parent, s.spec ->> 'id' as node_id, s.spec ->> 'join' = 'all_done' as sees
    from nodes n
    cross join lateral jsonb_array_elements(n.node -> 'spawned') s (spec)
    cross join lateral jsonb_array_elements_text(s.spec -> 'parents') p (parent)
  ), failed as (
    -- A node that was retried has several records; the last one counts.
    select f.run_id, f.node_id
    from (
      select distinct on (n.run_id, n.node ->> 'id') n.run_id, n.node ->> 'id' as node_id, n.node ->> 'status' as status
      from nodes n
      order by n.run_id, n.node ->> 'id', n.seq desc
    ) f
    where f.status <> 'succeeded'
  ), reached (run_id, node_id, at, seen) as (
    select f.run_id, f.node_id, f.node_id, false from failed f
    union
    select r.run_id, r.node_id, s.node_id, coalesce(s.sees, false)
    from reached r
    join successors s on s.run_id = r.run_id and s.parent = r.at
    where not r.seen
  )
  select r.run_id, r.node_id from reached r group by r.run_id, r.node_id having bool_or(r.seen)
$$;
revoke execute on function pgexec.handled_failures(uuid[]) from public;

-- Runs the failed nodes of a failed run again; what succeeded stays as it is. Child runs that failed or were cancelled
-- go on with it, but for those whose failure some node has seen and dealt with; so do those whose end is wanted
-- and has not come yet: that a run fails is the end of what it waits for, until it is retried. The answer
-- is "retrying", or "is succeeded: nothing to retry" and the like.
create function pgexec.retry(run_id uuid) returns text
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  named pgexec.runs := pgexec.lock_named_run(retry.run_id);
  level uuid[] := array[retry.run_id];
  unowned uuid[];
  owned uuid[];
begin
  if named.status <> 'failed' then
    return 'is ' || named.status || ': nothing to retry';
  end if;
  while cardinality(level) > 0 loop
    perform from pgexec.runs r where r.run_id = any (level) order by r.run_id for update;
    with changed as (
      update pgexec.runs r
      set status = case when r.owner is null then 'queued' else r.status end, run_at = least(r.run_at, clock_timestamp()),
        inbox = r.inbox + 1, wanted = null, wanted_reason = null,
        finished_at = null, result = null, result_seq = null, error = null, reason = null, waiting_kinds = null
      where r.run_id = any (level) and (r.status in ('failed', 'cancelled') or r.wanted = 'cancel')
      returning r.run_id, r.owner
    )
    select array(select c.run_id from changed c where c.owner is null),
      array(select c.run_id from changed c where c.owner is not null)
    into unowned, owned;
    perform pgexec.wake_runs(unowned);
    perform pgexec.tell_owners(owned);
    with ended as materialized (
      select c.run_id, c.parent_run_id, c.parent_node_id from pgexec.runs c
      where c.parent_run_id = any (unowned || owned) and (c.status in ('failed', 'cancelled') or c.wanted = 'cancel')
    )
    select array(
      select e.run_id from ended e
      where (e.parent_run_id, e.parent_node_id) not in (
        select f.run_id, f.node_id from pgexec.handled_failures(array(select distinct parent_run_id from ended)) f))
    into level;
  end loop;
  return 'retrying';
end
$$;
