-- A new run, in the caller's transaction if there is one; its wake is made by the table's trigger. A taken idempotency key inserts nothing (unique index runs_idempotency_key).
insert into pgexec.runs (run_id, kind, input, queue, priority, labels, idempotency_key, run_at, traceparent,
  max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline, max_parallel, soft_limit, max_turns, max_tool_calls)
values (coalesce($1, pgexec.uuid7()), $2, $3, $4, $5, $6, $7, coalesce($8, now()), $9,
  $10, $11::float8::numeric, $12, $13, $14, $15, coalesce($16::float8, 0.8), $17, $18)
on conflict (idempotency_key) where idempotency_key is not null do nothing
returning run_id
