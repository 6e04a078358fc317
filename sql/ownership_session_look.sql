-- What of the session is still there at a second look: its backend, a setting, and the lock of replica $1. Behind a transaction-mode pooler they belong to whoever has that backend now.
select pg_backend_pid() as backend_pid,
  coalesce(current_setting('pgexec.session', true), '') as session,
  exists (
    select from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.classid = 1885824376 and l.objid = $1::integer::oid and l.objsubid = 2
      and l.granted and l.pid = pg_backend_pid()
  ) as locked
