-- The other replicas whose session is gone (their lock is free) or whose heartbeat is late by the database's clock. The locks are tried, never waited for, and given back at the statement's end.
select s.replica_id, s.free, s.heartbeat_at
from (
  select r.replica_id, r.heartbeat_at,
    pg_try_advisory_xact_lock(1885824376, r.replica_id) as free,
    r.heartbeat_at < clock_timestamp() - $2::bigint * interval '1 microsecond' as late
  from pgexec.replicas r
  where r.replica_id <> $1::integer
  offset 0
) s
where s.free or s.late
