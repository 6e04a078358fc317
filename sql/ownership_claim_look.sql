-- What a claim record has to say of each wanted run. Plain reads, nothing is locked: the claim is conditional on all of it.
select r.run_id, r.epoch, coalesce(r.owner, 0) as owner, coalesce(r.orphaned_by, 0) as orphaned_by,
  exists (select from pgexec.replicas p where p.replica_id = r.owner and p.closed) as closed,
  (extract(epoch from clock_timestamp()) * 1000000)::bigint as at_us
from pgexec.runs r
where r.run_id = any ($1::text[]::uuid[])
