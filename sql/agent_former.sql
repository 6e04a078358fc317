-- A run that another one wants to continue, if the same role made both: a plain read by primary keys.
select f.run_id, f.kind, f.status
from pgexec.runs f
join pgexec.runs r on r.created_by = f.created_by
where f.run_id = $1 and r.run_id = $2
