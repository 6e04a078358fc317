-- Bounds and forms of one sql node, for its transaction only: they are gone at its end. The bound before is what is set again after the statement.
select pg_catalog.current_setting('statement_timeout') as former,
       pg_catalog.set_config('statement_timeout', $1::text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true),
       pg_catalog.set_config('pgexec.idempotency_key', $3::text, true),
       pg_catalog.set_config('client_encoding', 'UTF8', true),
       pg_catalog.set_config('datestyle', 'ISO', true),
       pg_catalog.set_config('bytea_output', 'hex', true),
       pg_catalog.set_config('extra_float_digits', '1', true)
