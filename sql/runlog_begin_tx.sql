-- Marks the transaction of a node's record until it ends, however it does: what is begun after it on the connection is another one. It takes no snapshot, so that a handler may still set the isolation level.
set local pgexec.record_tx = 'open'
