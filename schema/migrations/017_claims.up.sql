-- The overview counts the claims of a run and says so, and what whoever starts a run may attach to it is bounded.

-- Each claim has an epoch of its own, also one that comes after a wait: only some of them are takeovers.
alter view pgexec.run_overview rename column takeovers to claims;
-- One line a run: what it does, where, and why it waits.
create or replace view pgexec.run_overview as
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
  r.epoch as claims,
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
create or replace function pgexec.run_problem(run pgexec.runs) returns text
language sql immutable
set search_path = ''
return case
  when run.kind = '' then 'kind is empty, must be the kind of the run''s first node'
  when octet_length(run.kind) > 128 then format('kind has %s bytes, must have at most 128: %s…', octet_length(run.kind), to_json(left(run.kind, 40)))
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
  -- These are in whatever shows a run. A child run has its parent's traceparent, which was allowed when that began.
  when octet_length(run.labels::text) > 16384 then format('labels has %s bytes as text, must have at most 16384 (16 KiB): put what is long into input', octet_length(run.labels::text))
  when run.parent_run_id is null and octet_length(run.traceparent) > 512 then format('traceparent has %s bytes, must have at most 512: %s…', octet_length(run.traceparent), to_json(left(run.traceparent, 40)))
end;
