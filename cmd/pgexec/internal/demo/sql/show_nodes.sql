-- One run's nodes, in the order of its log.
select seq, node_id, n.kind, name as replica,
  to_char(started_at, 'SS.MS') as started,
  (extract(epoch from duration) * 1000)::int as ms,
  left(coalesce(output #>> '{body,answer}', output ->> 'text',
    output ->> 'stop', output ->> 'agent', output::text), 17) as output
from pgexec.nodes n join demo_replica using (replica_id)
where run_id = :'run_id' order by seq;
