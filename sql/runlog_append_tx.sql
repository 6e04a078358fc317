-- Appends one record of one run, or nothing, under the rule of the one-row form, in a transaction and on a connection that have other work as well: the rule is a function with planner settings of its own. Nothing if the marked transaction has been ended, by COMMIT AND CHAIN too. Nothing in a serializable one either: what it reads of the log and of runs would make others fail. From then on any claim of the run waits for this transaction: that of a process that has frozen, or that nobody can reach, the server ends, before the run is given to another one.
insert into pgexec.run_log (run_id, seq, record)
select $1::uuid, $2::bigint + 1, $3::bytea
where pg_catalog.current_setting('pgexec.record_tx', true) = 'open'
  and case when pg_catalog.current_setting('transaction_isolation') <> 'serializable' then pgexec.may_append($1::uuid, $2::bigint, $4::integer, $5::bigint) end
on conflict do nothing
returning pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true)
