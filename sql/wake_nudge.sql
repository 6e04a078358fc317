-- Tells every River client of these queues to fetch now; loses nothing when it is lost, since they also poll.
select pg_notify('pgexec.river_insert', json_build_object('queue', queue)::text)
from unnest($1::text[]) queue
