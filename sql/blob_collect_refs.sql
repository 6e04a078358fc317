-- Looks at one page of the references that are not known to be in a log, of which those of runs that have ended and that nobody has touched for $3 are settled: found in the run's log, or dropped. Under the row's lock, in the version that this snapshot shows: whoever refers anew makes another one; rows that are locked are left to the next pass. One collector at a time, by the transaction's advisory try-lock: the answer of another one has no page.
with turn as materialized (
  select pg_try_advisory_xact_lock(1885824376, -1) as mine
), page as materialized (
  select f.run_id, f.sha256, f.xmin as version
  from turn, pgexec.blob_refs f
  where turn.mine and not (f.logged or f.lasting) and (f.run_id, f.sha256) > ($1::uuid, $2::bytea)
  order by f.run_id, f.sha256
  limit $4
), idle as materialized (
  select f.run_id, f.sha256
  from page p
  join pgexec.blob_refs f on f.run_id = p.run_id and f.sha256 = p.sha256 and f.xmin = p.version
  join pgexec.runs r on r.run_id = f.run_id
  where r.status in ('succeeded', 'failed', 'cancelled') and f.touched_at < clock_timestamp() - $3::bigint * interval '1 microsecond'
  order by f.run_id, f.sha256
  for no key update of f skip locked
), settled as materialized (
  select i.run_id, i.sha256, exists (
    select from pgexec.run_log l
    where l.run_id = i.run_id
      and (position(i.sha256 in l.record) > 0 or position(convert_to(encode(i.sha256, 'hex'), 'UTF8') in l.record) > 0)
  ) as in_log
  from idle i
), logged as (
  update pgexec.blob_refs f set logged = true
  from settled s
  where f.run_id = s.run_id and f.sha256 = s.sha256 and s.in_log
), dropped as (
  delete from pgexec.blob_refs f
  using settled s
  where f.run_id = s.run_id and f.sha256 = s.sha256 and not s.in_log
  returning 1
)
select turn.mine, count(p.run_id) as looked_at,
  (select p.run_id from page p order by p.run_id desc limit 1) as last_run,
  (select p.sha256 from page p order by p.run_id desc, p.sha256 desc limit 1) as last_sha256,
  (select count(*) from dropped) as dropped
from turn left join page p on true
group by turn.mine
