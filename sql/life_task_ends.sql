-- The tasks of run $1 that have ended, at most $3 of them, the earliest first. An output that is not small is null: it is read by itself. Removes the tasks $2 on the way, which the log has recorded, if it has its head at $4 and the run is owner $5's at epoch $6; no lock is waited for.
with recorded as (
  delete from pgexec.tasks t
  where t.task_id in (
    select e.task_id from pgexec.tasks e
    where e.run_id = $1::uuid and e.task_id = any ($2::bigint[]) and e.state in ('succeeded', 'failed')
      and case when $2::bigint[] <> '{}' then pgexec.may_append($1::uuid, $4::bigint, $5::integer, $6::bigint) end
    for update skip locked)
)
select t.task_id, t.node_id, t.attempt, t.state = 'succeeded' as succeeded, pgexec.small_text(t.output) as output,
  left(coalesce(t.error, ''), 20000), coalesce(t.error_code, ''), t.permanent,
  case when t.retry_after > '0' then (extract(epoch from least(t.retry_after, interval '1 year')) * 1000000)::bigint else 0 end as retry_after_us,
  coalesce(t.taken_at, t.ended_at), t.ended_at, t.usage
from pgexec.tasks t
where t.run_id = $1::uuid and t.state in ('succeeded', 'failed') and t.task_id <> all ($2::bigint[])
order by t.ended_at, t.task_id
limit $3
