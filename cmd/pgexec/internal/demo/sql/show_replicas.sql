-- Which replica recorded what.
select r.name as replica, r.pid, coalesce(r.stopped_by, 'none') as signal,
  count(*) as nodes_recorded, count(distinct n.run_id) as of_runs
from pgexec.nodes n join demo_replica r using (replica_id)
group by r.name, r.pid, r.stopped_by order by r.name;
