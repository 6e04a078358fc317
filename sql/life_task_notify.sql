-- Tells workers that there are tasks of these kinds. It is a hint: they also poll.
select pg_notify('pgexec_task', k.kind) from unnest($1::text[]) k (kind)
