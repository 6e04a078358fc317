-- Shows the limits that the program of replica $1 declares; they go when the replica is taken off the list.
insert into pgexec.declared_limits (replica_id, kind, max_in_flight, rate, per, burst, key_pointer)
select $1::integer, d.kind, nullif(d.max_in_flight, -1), nullif(d.rate, 0), d.per_us * interval '1 microsecond', d.burst, nullif(d.key_pointer, '')
from unnest($2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::integer[], $7::text[])
  as d (kind, max_in_flight, rate, per_us, burst, key_pointer)
on conflict (replica_id, kind) do nothing
