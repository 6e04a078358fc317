-- Parks run $1 until $5, or for ever when that is null, if owner, epoch and inbox are still what its owner has seen, and nothing is wanted of it (G4): under the row's lock, on its newest version. Whoever changes something for the run holds that lock until its transaction ends, so a lock that is taken means no; none is waited for. With the parking the run stands in the lines of the limits that hold it, and its row has what it has spent. Also answers whether the run was the owner's in the statement's snapshot.
with held as materialized (
  select r.run_id
  from pgexec.runs r
  where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint and r.inbox = $4::bigint
    and r.wanted is null
    and coalesce($5::timestamptz > clock_timestamp(), true)
  for update of r skip locked
), parked as (
  update pgexec.runs r
  set status = 'parked', owner = null, run_at = coalesce($5::timestamptz, 'infinity'), wake_job = null,
    reason = pgexec.utf8_lossy($6::bytea),
    input_tokens = $10, output_tokens = $11, cost_usd = trim_scale($12::bigint / 1000000000::numeric), unpriced = $13, nodes_done = $14, may_ask = $15
  from held h
  where r.run_id = h.run_id
  returning r.run_id
), lined_up as (
  insert into pgexec.kind_queue (run_id, epoch, kind, key, since)
  select p.run_id, $3::bigint, l.kind, l.key, l.since
  from parked p
  cross join unnest($7::text[], $8::text[], $9::timestamptz[]) as l (kind, key, since)
)
select exists (select from parked) as parked,
  exists (select from pgexec.runs r where r.run_id = $1::uuid and r.owner is not distinct from $2::integer and r.epoch = $3::bigint) as ours
