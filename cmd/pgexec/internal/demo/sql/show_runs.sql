-- What became of the runs.
select r.input ->> 'agent' as agent, o.status, count(*) as runs,
  sum(o.nodes_done) as nodes
from pgexec.run_overview o join pgexec.runs r using (run_id)
group by 1, 2 order by 1 desc;
