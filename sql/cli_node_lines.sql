-- The nodes of one run that are done, in the order of its log, with no more than $2 characters of what came of each: a plain read along the primary key.
select seq, node_id, coalesce(kind, ''), parents, coalesce(status, ''), coalesce(attempt, 0), started_at, finished_at,
  coalesce(replica_id, 0), left(coalesce(nullif(error, ''), output::text, ''), $2)
from pgexec.nodes
where run_id = $1
order by seq
