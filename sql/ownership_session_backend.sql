-- The backend that serves this connection now.
select pg_backend_pid()
