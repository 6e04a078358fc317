-- For a transaction of a few statements that holds locks on runs between them, and nothing that takes time: if its process freezes, or nobody can reach it, the server ends it, so that the runs go on.
set local idle_in_transaction_session_timeout = '5s'
