-- Ends or pauses many runs, each all or not at all: the finished record is in the log if and only if the run's row says so, and a parent that waits knows (G1–G4). Under the row locks of the parents, then of the runs, each on its newest version; none is waited for. The answer for each run: ended; busy, when somebody else holds one of its locks; changed, when something has reached it that the decision does not know; refused, when it is another owner's or its head is not there. Also each parent whose owner is to be told, and each that was woken, with the queue of its wake. Each row is found by key: laterally where it is locked.
with ended as materialized (
  select * from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bytea[],
      $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::boolean[])
    as e (run_id, head, owner, epoch, record, status, result, result_seq, error, reason, inbox, input_tokens, output_tokens, cost_nano_usd, unpriced, nodes, may_ask)
), parent as materialized (
  select p.run_id, p.wake
  from (
    select distinct (select r.parent_run_id from pgexec.runs r where r.run_id = e.run_id) as run_id
    from ended e where e.status <> 'paused'
  ) w
  cross join lateral (
    select p.run_id, p.status = 'parked' and p.wake_job is null as wake
    from pgexec.runs p where p.run_id = w.run_id
    for no key update skip locked
  ) p
), held as materialized (
  select e.*, r.parent,
    -- A request for the end is not undone by a pause, nor carried out when it was taken back.
    (e.inbox is null or e.inbox = r.inbox)
      and case e.status when 'paused' then r.wanted is distinct from 'cancel' when 'cancelled' then r.wanted is not distinct from 'cancel' else true end as as_seen
  from ended e
  cross join lateral (
    -- "is not distinct from" keeps the index on owner out of it: the primary key finds the row.
    select case when e.status <> 'paused' then r.parent_run_id end as parent, r.inbox, r.wanted
    from pgexec.runs r
    where r.run_id = e.run_id and r.owner is not distinct from e.owner and r.epoch = e.epoch
    for update skip locked
  ) r
), free as materialized (
  select h.* from held h
  where h.as_seen
    and (h.parent is null or h.parent in (select p.run_id from parent p) or (select true from pgexec.runs p where p.run_id = h.parent) is null)
), logged as (
  insert into pgexec.run_log (run_id, seq, record)
  select f.run_id, f.head + 1, f.record
  from free f
  where (select true from pgexec.run_log l where l.run_id = f.run_id and l.seq = f.head)
  order by f.run_id
  on conflict do nothing
  returning run_id
), done as (
  update pgexec.runs r
  set status = f.status, owner = null, finished_at = case when f.status <> 'paused' then clock_timestamp() end,
    wake_job = null, wanted = null, wanted_reason = null, reason = pgexec.utf8_lossy(f.reason), waiting_kinds = null,
    result = pgexec.json_lossy(f.result), result_seq = nullif(f.result_seq, 0), error = pgexec.utf8_lossy(f.error),
    input_tokens = f.input_tokens, output_tokens = f.output_tokens, cost_usd = trim_scale(f.cost_nano_usd / 1000000000::numeric), unpriced = f.unpriced,
    nodes_done = f.nodes, may_ask = f.may_ask
  from free f
  where r.run_id = f.run_id and (f.run_id in (select l.run_id from logged l)) is true
  returning r.run_id
), told as (
  update pgexec.runs p
  set inbox = p.inbox + n.children, wake_job = case when n.wake then nextval('pgexec.river_job_id_seq') else p.wake_job end
  from (
    select f.parent as run_id, f.parent in (select q.run_id from parent q where q.wake) as wake, count(*) as children
    from free f
    where (f.run_id in (select l.run_id from logged l)) is true
      -- A parent that ends in this very statement needs no news, and is updated once.
      and (f.parent in (select q.run_id from parent q)) is true and (f.parent in (select l.run_id from logged l)) is not true
    group by f.parent
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
    when e.run_id in (select d.run_id from done d) then 'ended'
    when e.run_id in (select h.run_id from held h where not h.as_seen) then 'changed'
    when e.run_id in (select f.run_id from free f) then 'refused'
    when e.run_id in (select h.run_id from held h) then 'busy'
    when (select r.owner = e.owner and r.epoch = e.epoch from pgexec.runs r where r.run_id = e.run_id) then 'busy'
    else 'refused'
  end as outcome,
  null as queue
from ended e
union all
select t.run_id, case when t.wake then 'woken' else 'tell' end, t.queue
from told t
where t.wake or t.owner is not null
