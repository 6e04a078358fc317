-- The tasks of one kind, or of all when it is empty: first those that have been there longest, at most $2. A plain read.
select t.task_id, t.run_id, t.node_id, t.kind, t.attempt, t.state, coalesce(t.worker, ''), t.lease_until, t.deliveries, t.created_at
from pgexec.tasks t
where $1::text in ('', t.kind)
order by t.created_at, t.task_id
limit $2
