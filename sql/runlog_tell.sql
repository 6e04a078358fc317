-- Tells the owners of runs that something has reached them, and the replicas that take wakes of some queues, or with $3 of all that are served. Hints only: nothing is changed or locked, and the commit need not wait for the disk under the lock of all that notify.
select pgexec.tell_owners($1::text[]::uuid[]), set_config('synchronous_commit', 'off', true)
union all
select pg_notify('pgexec.river_insert', json_build_object('queue', q.queue)::text), null
from (
  select unnest($2::text[])
  union
  select unnest(r.queues) from pgexec.replicas r where $3::boolean
) q (queue)
