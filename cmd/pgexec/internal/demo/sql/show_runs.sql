-- What became of the runs.
select status, count(*) as runs, sum(takeovers) as takeovers
from pgexec.run_overview group by status;
