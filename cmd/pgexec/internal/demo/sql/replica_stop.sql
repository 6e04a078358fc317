-- Notes by the database's clock that a replica gets a signal now.
update public.demo_replica set stopped_by = $2, stopped_at = clock_timestamp() where replica_id = $1 returning stopped_at
