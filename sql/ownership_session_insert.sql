-- Lists a replica whose lock this session holds. No row comes back for an id that is listed already: a dead replica's, whose runs are not put back yet.
insert into pgexec.replicas
  (replica_id, host, pid, version, kinds, queues, max_hot_runs, former_ids, backend_pid, backend_start, started_at, heartbeat_at)
select $1::integer, $2::text, $3::integer, $4::text, $5::text[], $6::text[], $7::integer, $8::integer[], a.pid, a.backend_start, now.now, now.now
from pg_catalog.pg_stat_activity a, clock_timestamp() as now (now)
where a.pid = pg_backend_pid()
on conflict (replica_id) do nothing
returning heartbeat_at
