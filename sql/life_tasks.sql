-- Makes the tasks of nodes $4 of run $1, each with its attempt $6; one that is there for that attempt stays as it is, however far it has come (G4). One of a kind that is not declared any more has ended at once. Under the run's row lock (key share), and only while the run is the owner's and nobody wants it paused or cancelled: a run that ends or pauses locks its row first and then sees the tasks, or makes this one refuse. No lock of the run's is waited for.
with run as materialized (
  select r.run_id, r.priority, r.wanted, r.has_tasks
  from pgexec.runs r
  where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint
  for key share of r skip locked
), marked as (
  -- The row is changed once in the run's life.
  update pgexec.runs r set has_tasks = true
  where r.run_id in (
    select m.run_id from pgexec.runs m
    where m.run_id in (select run.run_id from run where not run.has_tasks)
    for no key update skip locked)
  returning r.run_id
), asked as materialized (
  select r.run_id, r.priority from run r where r.wanted is null and (r.has_tasks or r.run_id in (select m.run_id from marked m))
), made as (
  insert into pgexec.tasks (run_id, node_id, kind, attempt, input, at_most_once, limit_key, priority, state, ended_at, error_code)
  select r.run_id, n.node_id, n.kind, n.attempt, pgexec.utf8_lossy(n.input)::json, n.at_most_once, n.limit_key, r.priority, d.*
  from asked r
  cross join unnest($4::text[], $5::text[], $6::integer[], $7::bytea[], $8::boolean[], $9::text[]) as n (node_id, kind, attempt, input, at_most_once, limit_key)
  cross join lateral (
    select case when k.n = 1 then 'waiting' else 'failed' end, case when k.n = 0 then clock_timestamp() end, case when k.n = 0 then 'undeclared' end
    from (select count(*) as n from pgexec.task_kinds k where k.kind = n.kind) k
  ) d
  on conflict (run_id, node_id) do update
  set task_id = default, kind = excluded.kind, attempt = excluded.attempt, input = excluded.input, at_most_once = excluded.at_most_once,
    limit_key = excluded.limit_key,
    priority = excluded.priority, state = excluded.state, created_at = clock_timestamp(), worker = null, taken_at = null, lease_until = null,
    deliveries = 0, ended_at = excluded.ended_at, output = null, error = null, error_code = excluded.error_code, permanent = false, retry_after = null, usage = null
  where tasks.attempt <> excluded.attempt or tasks.error_code = 'undeclared'
  returning state
)
select (select count(*) from made where state = 'waiting')::integer as made,
  exists (select from asked) as asked,
  exists (select from run r where r.wanted is not null) as refused,
  exists (select from pgexec.runs r where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint) as ours
