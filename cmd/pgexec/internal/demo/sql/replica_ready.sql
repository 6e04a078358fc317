-- The replicas that serve now: a plain read.
select replica_id, pid from pgexec.replicas
