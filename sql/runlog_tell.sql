-- Tells the owners of runs whose children have ended, and the replicas that take wakes of some queues. Hints only: nothing is changed or locked.
select pgexec.tell_owners($1::text[]::uuid[])
union all
select pg_notify('pgexec.river_insert', json_build_object('queue', q.queue)::text) from unnest($2::text[]) q (queue)
