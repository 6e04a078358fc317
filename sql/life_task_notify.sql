-- Tells workers that there are tasks of these kinds. It is a hint: they also poll, so that its commit need not wait for the disk under the lock of all that notify.
select pg_notify('pgexec_task', k.kind), set_config('synchronous_commit', 'off', true) from unnest($1::text[]) k (kind)
