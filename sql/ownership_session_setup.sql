-- Settings of a replica's session. The server ends the session of a peer it cannot reach; nothing else ends it while it rests; its own statements are short, its heartbeats need no flush, and times are read in one form.
select set_config('tcp_keepalives_idle', $1::text, false),
  set_config('tcp_keepalives_interval', '2', false),
  set_config('tcp_keepalives_count', '3', false),
  set_config('tcp_user_timeout', $2::text, false),
  set_config('statement_timeout', $3::text, false),
  set_config('lock_timeout', $3::text, false),
  set_config('idle_session_timeout', '0', false),
  set_config('idle_in_transaction_session_timeout', '5s', false),
  set_config('synchronous_commit', 'off', false),
  set_config('datestyle', 'ISO', false),
  set_config('pgexec.session', $4::text, false)
