-- What became of the runs.
select input ->> 'agent' as agent, status, count(*) as runs,
  sum(takeovers) as takeovers
from pgexec.run_overview group by 1, 2 order by 1 desc;
