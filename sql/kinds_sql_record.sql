-- The bounds of a sql node end with its statement: the node's record, in the same transaction, has those of before, and a longer one between its statements, since an output may go to a blob store first.
select pg_catalog.set_config('statement_timeout', $1::text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true)
