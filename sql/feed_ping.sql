-- Proves that notifications of any other session reach the listener that knows this token.
select pg_notify('pgexec_ping', $1), set_config('synchronous_commit', 'off', true)
