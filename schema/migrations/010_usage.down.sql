drop view pgexec.nodes;
-- A node whose cost is not known, or not all of it, has none.
create view pgexec.nodes as
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
  (d.rec #>> '{node,replica_id}')::bigint as replica_id
from pgexec.run_log l
-- Decoded once a row: "offset 0" keeps the planner from repeating the call in each column.
cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
-- The first byte of a node's record, so that the others are not decoded at all.
where substring(l.record from 1 for 1) = '\x0a';

do $$
begin
  execute replace(replace(pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure),
    ',{cached_tokens,i,-},{reasoning_tokens,i,-}', ''), '{signal_id,i,-},{usage,m,Usage}}', '{signal_id,i,-}}');
end
$$;

-- What a caller may not choose is set here: a new run is queued, free, and has its wake's id when it is due.
-- A child run is made by who runs its parent: whoever may only insert cannot put a run into another one's tree.
create or replace function pgexec.runs_before_insert() returns trigger
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

drop function pgexec.run_problem(pgexec.runs);

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
      when r.orphaned_by is not null then 'replica ' || r.orphaned_by || ' died'
      else 'queued for ' || date_trunc('second', now() - greatest(r.run_at, r.created_at)) end
    when 'parked' then r.reason
    when 'paused' then coalesce(r.reason, 'paused')
  end as waits_for,
  greatest(r.epoch - 1, 0) as takeovers,
  -- Spent, child runs included, as of the last end, pause or parking.
  r.input_tokens + r.output_tokens as tokens,
  r.input_tokens,
  r.output_tokens,
  -- Null when it is not known, or not all of it: so many uses of a model have no price in pgexec.model_prices.
  case when r.unpriced = 0 then r.cost_usd end as cost_usd,
  r.unpriced,
  r.nodes_done,
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
left join pgexec.replicas p on p.replica_id = r.owner;

do $$
begin
  execute replace(pg_get_functiondef('pgexec.fork(uuid, bigint, text, jsonb)'::regprocedure), ' may_ask = true,', '');
end
$$;

-- What people are asked to approve, in runs that have not ended: who asks, the tool, and the arguments it would get.
create or replace view pgexec.approvals as
select r.run_id, a.node_id, a.about ->> 'tool' as tool, a.args, a.about, a.since, r.kind, r.input ->> 'agent' as agent, r.created_by
from pgexec.runs r
cross join lateral pgexec.open_approvals(r.run_id) a
where r.finished_at is null;

drop index pgexec.runs_status;
alter table pgexec.runs drop column may_ask;
drop table pgexec.run_usage;
