-- Session-level advisory locks that a sql node took end with it: the connection goes back to the
-- pool. Locks of transactions, and those of a replica's own session, are not touched.
select pg_catalog.pg_advisory_unlock_all()
