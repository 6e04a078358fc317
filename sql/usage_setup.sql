-- For the statements that follow in the same transaction: they find each row by key, and their commit waits for no flush. What a crash of the server loses of them the next owners say again.
select set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('synchronous_commit', 'off', true)
