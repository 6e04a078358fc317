-- For the statement that follows in the same transaction: its plan is made once for each connection and finds each row by key, however small the tables are when it is made. Not for statements that join what they have gathered: that would take time in its square. Its transaction notifies nobody: such a commit queues behind others that notify, and fails while the server's queue is full. What there is to tell is told afterwards.
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
  set_config('enable_material', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
  set_config('pgexec.notify_on_insert', 'off', true)
