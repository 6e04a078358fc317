-- Removes what was shown of runs that are not in memory any more and whose own rows have it, or are gone, where a replica died before it could; what somebody has locked is left to the next time.
delete from pgexec.run_usage u
where u.run_id in (
  select s.run_id from pgexec.run_usage s
  where (select r.status in ('running', 'queued') from pgexec.runs r where r.run_id = s.run_id) is not true
  for update skip locked)
