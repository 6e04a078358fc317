-- Takes the migration lock of this database until the transaction ends, or says at once that
-- somebody else has it. Never waits: a waiter would hold a snapshot back (key: 'pgex', -1).
select pg_catalog.pg_try_advisory_xact_lock(1885824376, -1)
