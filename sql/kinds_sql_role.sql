-- The rights of one statement, for its transaction only: the role before is what is set again after it.
select pg_catalog.current_setting('role') as former, pg_catalog.set_config('role', $1::text, true)
