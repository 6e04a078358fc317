-- Shows that replica $1 lives. No row comes back when it has been declared dead, or when this is not the backend that holds its lock: then the session is lost.
update pgexec.replicas
set heartbeat_at = clock_timestamp(), hot_runs = $2::integer, draining = $3::boolean
where replica_id = $1::integer and backend_pid = pg_backend_pid()
returning heartbeat_at
