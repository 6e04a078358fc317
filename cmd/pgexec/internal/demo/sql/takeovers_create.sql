-- Where a run changed its replica because of a signal, and for how long it stood still: from the signal, or from the
-- last record of the former owner if that came later, to the claim, and to the start of the next node there. Runs
-- that were parked, since they only waited, moved without standing still: what came next was the end of a wait.
create view public.demo_takeovers as
with log as (
  select run_id, seq, pgexec.decode(record) -> 'claim' as claim from pgexec.run_log
), claims as (
  select run_id, seq, (claim ->> 'replica_id')::integer as replica_id, (claim ->> 'at')::timestamptz as at,
    lag((claim ->> 'replica_id')::integer) over (partition by run_id order by seq) as former_id
  from log where claim is not null
), moves as (
  select c.run_id, c.seq, c.at, f.name as former, f.stopped_by, c.replica_id,
    greatest(f.stopped_at, (select max(n.finished_at) from pgexec.nodes n
      where n.run_id = c.run_id and n.seq < c.seq and n.replica_id = c.former_id)) as since
  from claims c join public.demo_replica f on f.replica_id = c.former_id
  where c.replica_id <> c.former_id and f.stopped_at <= c.at
)
select coalesce(o.labels ->> 'name', 'a-check') as run, m.former as "from", t.name as "to", m.stopped_by as signal, m.seq as at_seq,
  round(1000 * extract(epoch from m.at - m.since)) as claimed_ms,
  round(1000 * extract(epoch from n.started_at - m.since)) as next_node_ms
from moves m
join pgexec.run_overview o using (run_id)
join public.demo_replica t using (replica_id)
cross join lateral (select n.kind, n.started_at from pgexec.nodes n where n.run_id = m.run_id and n.seq > m.seq order by n.seq limit 1) n
where n.kind not in ('run', 'approval')
order by m.at, run
