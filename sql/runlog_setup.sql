-- For a connection that only appends: each plan is made once and finds each row by key, however small the tables are when it is made. The server does not end it while it rests.
select set_config('enable_seqscan', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false), set_config('idle_session_timeout', '0', false)
