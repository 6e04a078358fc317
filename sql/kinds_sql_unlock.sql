-- What a rollback does not take off the session of a sql node that only read: its session-level advisory locks end here, since the
-- connection goes back to the pool. (Locks of transactions, and those of a replica's own session, are not touched.) And whether
-- something was prepared with SQL, perhaps in the place of what the pool had prepared: then the connection is of no more use.
select pg_catalog.pg_advisory_unlock_all(),
       exists (select from pg_catalog.pg_prepared_statements where from_sql) as prepared
