-- The overview says why a run waits for a time that nobody has asked for: it cannot be ended, paused or gone on with, and is tried again.
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
      when r.run_at > now() then 'scheduled at ' || to_char(r.run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || coalesce(': ' || r.reason, '')
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
