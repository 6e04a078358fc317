-- For a connection that only appends: each plan is made once and finds each row by key, however small the tables are when it is made.
select set_config('enable_seqscan', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false)
