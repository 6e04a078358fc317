-- What became of the runs.
select status, count(*) as runs, sum(head) as records, sum(takeovers) as takeovers
from pgexec.run_overview group by status;
