-- Removes tasks of runs that have ended, which a worker was just taking at that moment; what somebody has locked is left to the next time.
delete from pgexec.tasks t
where t.task_id in (
  select s.task_id from pgexec.tasks s
  join pgexec.runs r on r.run_id = s.run_id
  where r.status in ('succeeded', 'failed', 'cancelled')
  for update of s skip locked)
