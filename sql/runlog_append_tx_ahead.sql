-- Appends one record of one run in a transaction of one snapshot, which may be older than the run's head, and reads nothing: whether the record may be there the caller has to find out, by runlog_is_next, before it commits. Until then any claim, which has to write at this place, waits, and not for ever: if nothing more comes, the server ends it. Returns the transaction's id; nothing where each statement has a snapshot of its own, or if the marked transaction has been ended.
insert into pgexec.run_log (run_id, seq, record)
select $1::uuid, $2::bigint + 1, $3::bytea
where pg_catalog.current_setting('pgexec.record_tx', true) = 'open'
  and pg_catalog.current_setting('transaction_isolation') in ('repeatable read', 'serializable')
on conflict do nothing
returning pg_catalog.pg_current_xact_id()::text, pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true)
