-- The database's clock: the one that counts.
select pg_catalog.clock_timestamp()
