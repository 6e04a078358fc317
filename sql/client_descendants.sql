-- The runs below some runs, those nearest to them first: a plain read along the index on parents.
with recursive below (id) as (
  select c.run_id from pgexec.runs c where c.parent_run_id = any ($1::text[]::uuid[])
  union
  select c.run_id from below b join pgexec.runs c on c.parent_run_id = b.id
)
select r.run_id, kind, pgexec.small_text(input)::jsonb as input, status, owner, r.epoch, queue, priority, labels, idempotency_key, case when run_at between timestamptz '0001-01-02 00:00Z' and '9999-12-30 00:00Z' then run_at end as run_at, created_by,
  created_at, started_at, finished_at, result, coalesce(result_seq, 0) as result_seq, error,
  case wanted
    when 'cancel' then 'being cancelled' || coalesce(': ' || wanted_reason, '')
    when 'pause' then 'being paused' || coalesce(': ' || wanted_reason, '')
    else reason
  end as reason,
  coalesce(parent_run_id, '00000000-0000-0000-0000-000000000000'::uuid) as parent_run_id, coalesce(parent_node_id, '') as parent_node_id, depth,
  greatest(r.input_tokens, u.input_tokens) as input_tokens, greatest(r.output_tokens, u.output_tokens) as output_tokens,
  pgexec.nano_usd(greatest(r.cost_usd, u.cost_usd)) as cost_nano_usd, greatest(r.unpriced, u.unpriced) as unpriced, greatest(r.nodes_done, u.nodes_done) as nodes_done,
  coalesce(max_tokens, 0) as max_tokens, coalesce(max_cost_usd, 0)::float8 as max_cost_usd, coalesce(max_nodes, 0) as max_nodes,
  coalesce(max_turns, 0) as max_turns, coalesce(max_tool_calls, 0) as max_tool_calls,
  coalesce(max_wall_ms, 0) as max_wall_ms,
  case when deadline between timestamptz '0001-01-02 00:00Z' and '9999-12-30 00:00Z' then deadline end as deadline, coalesce(max_parallel, 0) as max_parallel, soft_limit
from below
join pgexec.runs r on r.run_id = id
left join pgexec.run_usage u on u.run_id = r.run_id and u.epoch <= r.epoch
order by depth, created_at, r.run_id
limit $2
