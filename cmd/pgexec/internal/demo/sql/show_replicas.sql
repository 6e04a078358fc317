-- Which replica recorded what.
select name as replica, pid, stopped_by, count(*) as nodes_recorded,
  count(distinct run_id) as of_runs
from pgexec.nodes join demo_replica using (replica_id)
group by name, pid, stopped_by order by name;
