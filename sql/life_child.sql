-- Starts the child run of a node, once however often it is asked for: its id is its primary key. Under the parent's row lock (key share), and only while the parent is ours and nobody wants it paused or cancelled: a statement that goes down the tree locks the parent first and then sees the child, or makes this one refuse. With $16 none is made, and the answer only tells whether there is one. No lock of the parent's is waited for. Answers in which queue it was started.
with parent as materialized (
  select r.run_id, r.priority, r.queue, r.created_by, r.traceparent, r.soft_limit, r.wanted
  from pgexec.runs r
  where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint
  for key share of r skip locked
), started as (
  insert into pgexec.runs (run_id, parent_run_id, parent_node_id, kind, input, priority, queue, created_by, traceparent,
    max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline, max_parallel, soft_limit)
  select $5::uuid, p.run_id, $4::text, $6::text, pgexec.json_lossy($7::bytea),
    coalesce(nullif($8::smallint, 0), p.priority), p.queue, p.created_by, p.traceparent,
    nullif($9::bigint, 0), trim_scale(nullif($10::bigint, 0) / 1000000000::numeric), nullif($11::integer, 0), nullif($12::bigint, 0),
    timestamptz 'epoch' + nullif($13::bigint, 0) * interval '1 microsecond', nullif($14::integer, 0),
    coalesce(nullif($15::float8, 0), p.soft_limit)
  from parent p
  where p.wanted is null and not $16::boolean
  on conflict (run_id) do nothing
  returning run_id
)
select (select p.queue from parent p where exists (select from started)) as started,
  (select c.parent_run_id is not distinct from $1::uuid and c.parent_node_id is not distinct from $4::text from pgexec.runs c where c.run_id = $5::uuid) as existed,
  exists (select from parent p where p.wanted is not null) as refused,
  exists (select from pgexec.runs r where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint) as ours
