-- One run's nodes, in the order of its log.
select n.seq, n.node_id, n.kind, n.status, r.name as replica,
  to_char(n.started_at, 'MI:SS.MS') as started,
  (extract(epoch from n.duration) * 1000)::int as ms,
  left(coalesce(n.output #>> '{body,answer}', n.output ->> 'rows', n.output::text), 30) as output
from pgexec.nodes n join demo_replica r using (replica_id)
where n.run_id = :'run_id' order by n.seq;
