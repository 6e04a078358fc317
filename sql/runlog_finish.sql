-- Ends or pauses many runs, each all or not at all: the finished record is in the log if and only if the run's row says so, and a parent that waits knows (G1–G4). Under the row locks of the parents, then of the runs, each on its newest version, by depth and id; none is waited for. The answer for each run: ended; busy, when somebody else holds one of its locks; changed, when something has reached it that the decision does not know; refused, when it is another owner's or its head is not there. With the parent to tell, or the queue of its new wake.
with ended as materialized (
  select * from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bytea[],
      $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[])
    as e (run_id, head, owner, epoch, record, status, result, result_seq, error, reason, inbox, input_tokens, output_tokens, cost_nano_usd, nodes)
), parent as materialized (
  select p.run_id, p.status = 'parked' and p.wake_job is null as wake
  from pgexec.runs p
  where p.run_id in (
    select r.parent_run_id from ended e join pgexec.runs r on r.run_id = e.run_id
    where e.status <> 'paused' and r.parent_run_id is not null)
  order by p.depth, p.run_id
  for no key update skip locked
), held as materialized (
  -- "is not distinct from" keeps the index on owner out of it: the primary key finds the row.
  select r.run_id, case when e.status <> 'paused' then r.parent_run_id end as parent,
    (e.inbox is null or e.inbox = r.inbox)
      and case e.status when 'paused' then r.wanted is distinct from 'cancel' when 'cancelled' then r.wanted is not distinct from 'cancel' else true end as as_seen
  from ended e
  join pgexec.runs r on r.run_id = e.run_id
  where r.owner is not distinct from e.owner and r.epoch = e.epoch
  order by r.depth, r.run_id
  for update of r skip locked
), free as materialized (
  select h.run_id, h.parent from held h
  where h.as_seen
    and (h.parent is null or h.parent in (select p.run_id from parent p) or not exists (select from pgexec.runs p where p.run_id = h.parent))
), logged as (
  insert into pgexec.run_log (run_id, seq, record)
  select e.run_id, e.head + 1, e.record
  from ended e
  join free f on f.run_id = e.run_id
  where (select true from pgexec.run_log l where l.run_id = e.run_id and l.seq = e.head)
  order by e.run_id
  on conflict do nothing
  returning run_id
), done as (
  update pgexec.runs r
  set status = e.status, owner = null, finished_at = case when e.status <> 'paused' then clock_timestamp() end,
    wake_job = null, wanted = null, wanted_reason = null, reason = pgexec.utf8_lossy(e.reason), waiting_kinds = null,
    result = pgexec.json_lossy(e.result), result_seq = nullif(e.result_seq, 0), error = pgexec.utf8_lossy(e.error),
    input_tokens = e.input_tokens, output_tokens = e.output_tokens, cost_usd = trim_scale(e.cost_nano_usd / 1000000000::numeric), nodes_done = e.nodes
  from ended e
  join logged l on l.run_id = e.run_id
  where r.run_id = e.run_id
  returning r.run_id
), told as (
  update pgexec.runs p
  set inbox = p.inbox + n.children, wake_job = case when n.wake then nextval('pgexec.river_job_id_seq') else p.wake_job end
  from (
    select q.run_id, q.wake, count(*) as children
    from parent q
    join free f on f.parent = q.run_id
    join logged l on l.run_id = f.run_id
    where q.run_id not in (select l.run_id from logged l)
    group by q.run_id, q.wake
  ) n
  where p.run_id = n.run_id
  returning p.run_id, p.owner, n.wake, p.wake_job, p.queue, p.priority
), jobs as (
  insert into pgexec.river_job (id, args, kind, queue, priority, max_attempts)
  select wake_job, jsonb_build_object('run_id', run_id), 'pgexec_wake', queue, priority, 25
  from told
  where wake
)
select e.run_id,
  case
    when d.run_id is not null then 'ended'
    when h.run_id is null and r.run_id is not null then 'busy'
    when not h.as_seen then 'changed'
    when h.run_id is not null and f.run_id is null then 'busy'
    else 'refused'
  end as outcome,
  case when t.owner is not null then t.run_id end as tell,
  case when t.wake then t.queue end as queue
from ended e
left join pgexec.runs r on r.run_id = e.run_id and r.owner is not distinct from e.owner and r.epoch = e.epoch
left join held h on h.run_id = e.run_id
left join free f on f.run_id = e.run_id
left join done d on d.run_id = e.run_id
left join told t on t.run_id = f.parent
