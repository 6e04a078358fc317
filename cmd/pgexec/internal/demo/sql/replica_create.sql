-- The names that the demo gives the replicas, and the signals it sends them.
create table public.demo_replica (
  replica_id integer primary key, name text not null, pid integer not null, stopped_by text, stopped_at timestamptz
)
