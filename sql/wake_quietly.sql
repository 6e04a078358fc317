-- For what follows in the same transaction: it wakes runs and notifies nobody, so that it commits also while the server's queue of notifications is full. What there is to tell is told afterwards.
select set_config('pgexec.notify_on_insert', 'off', true)
