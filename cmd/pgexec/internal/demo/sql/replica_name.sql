-- Notes which replica is called what: its row in pgexec.replicas goes when it does.
insert into public.demo_replica (replica_id, name, pid) values ($1, $2, $3)
