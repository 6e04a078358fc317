-- Lists owners of runs that are not listed, so that they are found dead like any other; nobody but a person who deletes rows by hand makes such a one. Visits one index entry for each owner. A second finder's insert of the same row is no conflict.
with recursive owners (owner) as (
  (select r.owner from pgexec.runs r where r.owner is not null order by r.owner limit 1)
  union all
  select (select r.owner from pgexec.runs r where r.owner > o.owner order by r.owner limit 1)
  from owners o where o.owner is not null
)
insert into pgexec.replicas
  (replica_id, host, pid, version, kinds, queues, max_hot_runs, backend_pid, backend_start, heartbeat_at)
select o.owner, '', 0, '', '{}', '{}', 0, 0, '-infinity', clock_timestamp()
from owners o
where o.owner is not null and not exists (select from pgexec.replicas r where r.replica_id = o.owner)
on conflict (replica_id) do nothing
returning replica_id
