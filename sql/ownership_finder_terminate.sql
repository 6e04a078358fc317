-- Ends the session of a replica whose heartbeat has not moved since it was found late: only the very backend that the replica has listed, by pid and start. False when that backend is another role's and this one may not see it.
select case when a.backend_start is null then false else pg_terminate_backend(a.pid) end as ended
from pgexec.replicas r
join pg_catalog.pg_stat_activity a on a.pid = r.backend_pid
where r.replica_id = $1::integer and r.heartbeat_at = $2::timestamptz
  and (a.backend_start is null or a.backend_start = r.backend_start)
