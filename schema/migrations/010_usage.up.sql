-- What hot runs have spent so far, who may be asked for approvals, and words for rows of pgexec.runs that cannot be.

-- What runs in memory have spent, child runs that have ended included: a row is some two seconds old, and there is none of a run
-- whose own row has newer figures, or soon none. All figures of a run only grow along its log, so that of a row here
-- and the run's own row the greater ones are the newer ones, and no figure is counted twice. Written by owners, each naming its epoch: one of a
-- former owner changes nothing.
create table pgexec.run_usage (
  run_id        uuid primary key,
  epoch         bigint not null,
  input_tokens  bigint not null,
  output_tokens bigint not null,
  cost_usd      numeric not null,
  unpriced      bigint not null,
  nodes_done    bigint not null
  -- Half of each page is for the next versions of its rows: they stay on it, and the index is not touched.
) with (fillfactor = 50);

-- Whether people may be asked to approve something of the run, as far as that is known without its log. It is not known of a run
-- that was given back, whose owner died, or that was there before this column was.
alter table pgexec.runs add column may_ask boolean not null default true;
alter table pgexec.runs alter column may_ask set default false;
create index runs_may_ask on pgexec.runs (run_id) where may_ask and finished_at is null;

-- The runs of one status, the newest last.
create index runs_status on pgexec.runs (status, run_id);

-- What people are asked to approve, in runs that have not ended: who asks, the tool, and the arguments it would get.
create or replace view pgexec.approvals as
select r.run_id, a.node_id, a.about ->> 'tool' as tool, a.args, a.about, a.since, r.kind, r.input ->> 'agent' as agent, r.created_by
from pgexec.runs r
cross join lateral pgexec.open_approvals(r.run_id) a
where r.finished_at is null and (r.may_ask or r.owner is not null);

-- What a fork's prefix asks is not known until it is claimed.
do $$
declare
  definition text := pg_get_functiondef('pgexec.fork(uuid, bigint, text, jsonb)'::regprocedure);
  added text := replace(definition, 'set forked_from = source.run_id,', 'set may_ask = true, forked_from = source.run_id,');
begin
  if length(added) <> length(definition) + length(' may_ask = true,') then
    raise exception 'pgexec.fork is not what the migrations before made it';
  end if;
  execute added;
end
$$;

drop view pgexec.run_overview;
-- One line a run: what it does, where, and why it waits.
create view pgexec.run_overview as
select
  r.run_id,
  r.kind,
  r.status,
  r.owner,
  p.host,
  -- The newest record's seq, from the primary key; null when the log is empty or was pruned.
  (select l.seq from pgexec.run_log l where l.run_id = r.run_id order by l.seq desc limit 1) as head,
  coalesce(r.finished_at, now()) - r.created_at as age,
  -- What is wanted of it comes first: that is on its way, whatever the run does.
  case coalesce(r.wanted, r.status)
    when 'cancel' then 'being cancelled' || coalesce(': ' || r.wanted_reason, '')
    when 'pause' then 'being paused' || coalesce(': ' || r.wanted_reason, '')
    when 'queued' then case
      when r.run_at > now() then 'scheduled at ' || to_char(r.run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
      when r.waiting_kinds is not null then 'no replica for kind ' || array_to_string(r.waiting_kinds, ', ')
      when not exists (select from pgexec.replicas s where r.queue = any (s.queues)) then 'no replica for queue ' || r.queue
      when r.orphaned_by is not null then 'replica ' || r.orphaned_by || ' died'
      else 'queued for ' || date_trunc('second', now() - greatest(r.run_at, r.created_at)) end
    when 'parked' then r.reason
    when 'paused' then coalesce(r.reason, 'paused')
  end as waits_for,
  greatest(r.epoch - 1, 0) as takeovers,
  -- Spent as of some two seconds ago, ended child runs included.
  greatest(r.input_tokens, u.input_tokens) + greatest(r.output_tokens, u.output_tokens) as tokens,
  greatest(r.input_tokens, u.input_tokens) as input_tokens,
  greatest(r.output_tokens, u.output_tokens) as output_tokens,
  -- Null when it is not known, or not all of it: so many uses of a model have no price in pgexec.model_prices.
  case when greatest(r.unpriced, u.unpriced) = 0 then greatest(r.cost_usd, u.cost_usd) end as cost_usd,
  greatest(r.unpriced, u.unpriced) as unpriced,
  greatest(r.nodes_done, u.nodes_done) as nodes_done,
  r.error,
  r.queue,
  r.priority,
  r.labels,
  r.parent_run_id,
  r.parent_node_id,
  r.depth,
  r.created_by,
  r.created_at,
  r.started_at,
  r.finished_at
from pgexec.runs r
left join pgexec.replicas p on p.replica_id = r.owner
left join pgexec.run_usage u on u.run_id = r.run_id and u.epoch <= r.epoch;

-- What is wrong with a new run, in words that begin with the column; null if nothing is. What the table's constraints refuse
-- is here as well, said for people.
create function pgexec.run_problem(run pgexec.runs) returns text
language sql immutable
set search_path = ''
return case
  when run.kind = '' then 'kind is empty, must be the kind of the run''s first node'
  when length(run.kind) > 128 then format('kind has %s characters, must have at most 128: %s…', length(run.kind), to_json(left(run.kind, 40)))
  when run.kind ~ '[#\u0001-\u001f\u007f]' then format('kind is %s, must have no # and no control characters', to_json(run.kind))
  when run.queue = '' then 'queue is empty, must be a name, as "default"'
  when length(run.queue) > 127 then format('queue has %s characters, must have at most 127: %s…', length(run.queue), to_json(left(run.queue, 40)))
  when run.queue !~ '^[a-z0-9]+([_-][a-z0-9]+)*$' then format('queue is %s, must be lower-case letters and digits, in words joined by - or _', to_json(run.queue))
  when run.max_tokens <= 0 then format('max_tokens is %s, must be positive, or null for no limit', run.max_tokens)
  when (run.max_cost_usd > 0 and run.max_cost_usd < 'infinity') is false then format('max_cost_usd is %s, must be positive, or null for no limit', run.max_cost_usd)
  when run.max_nodes <= 0 then format('max_nodes is %s, must be positive, or null for no limit', run.max_nodes)
  when run.max_wall_ms <= 0 then format('max_wall_ms is %s, must be positive, or null for no limit', run.max_wall_ms)
  when run.max_turns <= 0 then format('max_turns is %s, must be positive, or null for no limit', run.max_turns)
  when run.max_tool_calls <= 0 then format('max_tool_calls is %s, must be positive, or null for no limit', run.max_tool_calls)
  when run.max_parallel <= 0 then format('max_parallel is %s, must be positive, or null for no limit', run.max_parallel)
  when not isfinite(run.deadline) then format('deadline is %s, must be a time, or null for none', run.deadline)
  when (run.soft_limit > 0 and run.soft_limit <= 1) is false then format('soft_limit is %s, must be above 0 and at most 1', run.soft_limit)
  when run.priority not between 1 and 4 then format('priority is %s, must be 1 (most urgent) to 4', run.priority)
  when jsonb_typeof(run.labels) <> 'object' then format('labels is %s, must be an object, as {"team": "blue"}', pgexec.json_words(run.labels, true))
  -- An index entry has room for some 2,700 bytes.
  when octet_length(run.idempotency_key) > 1024 then format('idempotency_key has %s bytes, must have at most 1024: %s…', octet_length(run.idempotency_key), to_json(left(run.idempotency_key, 40)))
end;
revoke execute on function pgexec.run_problem(pgexec.runs) from public;

-- What a caller may not choose is set here: a new run is queued, free, and has its wake's id when it is due.
-- A child run is made by who runs its parent: whoever may only insert cannot put a run into another one's tree.
create or replace function pgexec.runs_before_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
declare
  problem text := pgexec.run_problem(new);
begin
  if problem is not null then
    raise exception '%', problem using errcode = 'check_violation', table = 'runs', column = split_part(problem, ' ', 1);
  end if;
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
  new.has_tasks := false;
  new.may_ask := false;
  new.result := null;
  new.result_seq := null;
  new.error := null;
  new.reason := null;
  new.wanted := null;
  new.wanted_reason := null;
  new.input_tokens := 0;
  new.output_tokens := 0;
  new.cost_usd := 0;
  new.unpriced := 0;
  new.nodes_done := 0;
  new.started_at := null;
  new.finished_at := null;
  new.created_at := now();
  new.wake_job := case when new.run_at <= clock_timestamp() then nextval('pgexec.river_job_id_seq') end;
  return new;
end
$$;

-- Fields that the record format has got: what of the tokens were cached and reasoning, and what a failed attempt has used.
do $$
declare
  definition text := pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure);
  added text := replace(replace(definition,
    '{unpriced,i,-}}', '{unpriced,i,-},{cached_tokens,i,-},{reasoning_tokens,i,-}}'),
    '{replica_id,i,-},{signal_id,i,-}}', '{replica_id,i,-},{signal_id,i,-},{usage,m,Usage}}');
begin
  if length(added) <> length(definition) + length(',{cached_tokens,i,-},{reasoning_tokens,i,-},{usage,m,Usage}') then
    raise exception 'pgexec.decode_message is not what the migrations before made it';
  end if;
  execute added;
end
$$;

-- A node whose cost is not known, or not all of it, has none.
create or replace view pgexec.nodes as
select
  l.run_id,
  l.seq,
  d.rec #>> '{node,id}' as node_id,
  d.rec #>> '{node,kind}' as kind,
  array(select jsonb_array_elements_text(d.rec #> '{node,parents}')) as parents,
  d.rec #>> '{node,status}' as status,
  d.rec #> '{node,output}' as output,
  coalesce(d.rec #>> '{node,error,message}', 'damaged record: ' || (d.rec ->> 'corrupt')) as error,
  (d.rec #>> '{node,attempt}')::bigint as attempt,
  coalesce((d.rec #>> '{node,usage,input_tokens}')::bigint, 0)
    + coalesce((d.rec #>> '{node,usage,output_tokens}')::bigint, 0) as tokens,
  case when coalesce((d.rec #>> '{node,usage,unpriced}')::bigint, 0) = 0
    then coalesce((d.rec #>> '{node,usage,cost_nano_usd}')::numeric, 0) / 1000000000 end as cost_usd,
  (d.rec #>> '{node,started_at}')::timestamptz as started_at,
  (d.rec #>> '{node,finished_at}')::timestamptz as finished_at,
  (d.rec #>> '{node,finished_at}')::timestamptz - (d.rec #>> '{node,started_at}')::timestamptz as duration,
  (d.rec #>> '{node,replica_id}')::bigint as replica_id,
  coalesce((d.rec #>> '{node,usage,input_tokens}')::bigint, 0) as input_tokens,
  coalesce((d.rec #>> '{node,usage,cached_tokens}')::bigint, 0) as cached_tokens,
  coalesce((d.rec #>> '{node,usage,output_tokens}')::bigint, 0) as output_tokens,
  coalesce((d.rec #>> '{node,usage,reasoning_tokens}')::bigint, 0) as reasoning_tokens
from pgexec.run_log l
-- Decoded once a row: "offset 0" keeps the planner from repeating the call in each column.
cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
-- The first byte of a node's record, so that the others are not decoded at all.
where substring(l.record from 1 for 1) = '\x0a';
