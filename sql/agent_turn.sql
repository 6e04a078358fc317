-- What a model turn cost, null if the model has no price, and how many turns and tool calls its run may have, 0 for no limit, and how much of the time to its deadline is over, null without one: a plain read of what somebody may just be raising.
select c.usd::text as cost_usd, pgexec.nano_usd(c.usd) as cost_nano_usd,
  coalesce(r.max_turns, 0) as max_turns, coalesce(r.max_tool_calls, 0) as max_tool_calls, r.soft_limit,
  case when isfinite(r.deadline) then extract(epoch from now() - coalesce(r.started_at, r.created_at))::float8 end as seconds,
  case when isfinite(r.deadline) then extract(epoch from r.deadline - coalesce(r.started_at, r.created_at))::float8 end as seconds_to_deadline
from pgexec.runs r
cross join lateral (select pgexec.model_cost($2, $3, $4, $5, $6, $7) as usd) c
where r.run_id = $1
