-- One record of a run's log, byte for byte: a primary key read.
select record from pgexec.run_log where run_id = $1 and seq = $2
