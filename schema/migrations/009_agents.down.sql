drop view pgexec.run_overview;
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
  -- Spent, child runs included, as of the last end or pause.
  r.input_tokens + r.output_tokens as tokens,
  r.cost_usd,
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
  coalesce((d.rec #>> '{node,usage,cost_nano_usd}')::numeric, 0) / 1000000000 as cost_usd,
  (d.rec #>> '{node,started_at}')::timestamptz as started_at,
  (d.rec #>> '{node,finished_at}')::timestamptz as finished_at,
  (d.rec #>> '{node,finished_at}')::timestamptz - (d.rec #>> '{node,started_at}')::timestamptz as duration,
  (d.rec #>> '{node,replica_id}')::bigint as replica_id
from pgexec.run_log l
-- Decoded once a row: "offset 0" keeps the planner from repeating the call in each column.
cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
-- The first byte of a node's record, so that the others are not decoded at all.
where substring(l.record from 1 for 1) = '\x0a';

drop function pgexec.conversation(uuid);
drop function pgexec.message_calls(jsonb);
drop function pgexec.result_text(jsonb);
drop function pgexec.content_text(jsonb);
drop function pgexec.reject(uuid, text, text);
drop function pgexec.approve(uuid, text, jsonb);
drop function pgexec.decide(uuid, text, jsonb);
drop view pgexec.approvals;
drop function pgexec.open_approvals(uuid);
drop function pgexec.last_records(uuid);
drop function pgexec.payload_json(jsonb);

do $$
declare
  definition text := pg_get_functiondef('pgexec.resume(uuid, bigint, numeric, integer, bigint, timestamptz, integer, integer)'::regprocedure);
begin
  drop function pgexec.resume(uuid, bigint, numeric, integer, bigint, timestamptz, integer, integer);
  execute replace(replace(replace(replace(definition,
    ', add_turns integer DEFAULT NULL::integer, add_tool_calls integer DEFAULT NULL::integer', ''),
    ', add_turns, add_tool_calls) < 0', ') < 0'),
    'or coalesce(add_turns > 0 and r.max_turns is not null, false)
          or coalesce(add_tool_calls > 0 and r.max_tool_calls is not null, false)
          or ', 'or '),
    '
        max_turns = r.max_turns + coalesce(add_turns, 0),
        max_tool_calls = r.max_tool_calls + coalesce(add_tool_calls, 0),', '');
  execute replace(replace(pg_get_functiondef('pgexec.fork(uuid, bigint, text, jsonb)'::regprocedure),
    ', max_turns, max_tool_calls, forked_from)', ')'), ', source.max_turns, source.max_tool_calls, source.run_id)', ')');
  execute replace(pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure), ',{unpriced,i,-}', '');
end
$$;

drop trigger runs_agent_before_insert on pgexec.runs;
drop function pgexec.runs_agent_before_insert();
alter table pgexec.runs
  drop column max_turns,
  drop column max_tool_calls,
  drop column unpriced;
drop function pgexec.duration_ms(text);
drop function pgexec.model_cost(text, text, bigint, bigint, bigint, bigint);
drop function pgexec.model_price(text, text);
drop table pgexec.model_prices;
drop table pgexec.agents;
drop function pgexec.agents_before_write();
drop function pgexec.agent_input_problem(jsonb);
drop function pgexec.agent_problem(jsonb);
drop function pgexec.header_problem(jsonb, text);
drop function pgexec.schema_problem(jsonb, jsonb, jsonb, text);
drop function pgexec.schema_words(jsonb);
drop function pgexec.json_words(jsonb, boolean);
drop function pgexec.agent_input_schema();
drop function pgexec.agent_schema();
