-- The nodes of one run that are done, in the order of its log: a plain read along the primary key.
select node_id, coalesce(kind, ''), parents, coalesce(status, ''), output, coalesce(error, ''), coalesce(attempt, 0), tokens, cost_usd::float8
from pgexec.nodes
where run_id = $1
order by seq
