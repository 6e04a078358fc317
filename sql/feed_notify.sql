-- Sends hints that logs have grown, in a transaction of their own and never in an append's. A hint does not outlive a crash, so its commit need not wait for the disk: the lock under which notifying commits queue up is held only briefly.
select pg_notify('pgexec_log', payload), set_config('synchronous_commit', 'off', true)
from unnest($1::text[]) payload
