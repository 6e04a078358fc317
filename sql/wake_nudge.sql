-- Tells every River client of these queues to fetch now; loses nothing when it is lost, since they also poll, so that its commit need not wait for the disk under the lock of all that notify.
select pg_notify('pgexec.river_insert', json_build_object('queue', queue)::text), set_config('synchronous_commit', 'off', true)
from unnest($1::text[]) queue
