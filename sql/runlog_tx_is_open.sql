-- Whether this is still the transaction that was begun for a node's record.
select coalesce(pg_catalog.current_setting('pgexec.record_tx', true) = 'open', false)
