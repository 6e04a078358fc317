-- Removes tasks of runs that are no longer there, and of those that have ended while a worker was just taking them; what somebody has locked is left to the next time. Ends those of kinds that are not declared any more.
with removed as (
  delete from pgexec.tasks t
  where t.task_id in (
    select s.task_id from pgexec.tasks s
    left join pgexec.runs r on r.run_id = s.run_id
    where r.run_id is null or r.status in ('succeeded', 'failed', 'cancelled')
    for update of s skip locked)
)
select from pgexec.end_undeclared_tasks()
