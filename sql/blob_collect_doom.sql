-- Dooms those of one page of the blobs of stores $2 that no run refers to and that nobody has touched for $3. Under the row's lock, in the version that this snapshot shows: whoever refers to a content touches its row in the same transaction, so that a reference which this snapshot does not show has the row locked or has made another version. One collector at a time, by the transaction's advisory try-lock: the answer of another one has no page.
with turn as materialized (
  select pg_try_advisory_xact_lock(1885824376, -1) as mine
), page as materialized (
  select b.url, b.xmin as version
  from turn, pgexec.blobs b
  where turn.mine and b.url > $1 and b.store = any ($2::text[])
  order by b.url
  limit $4
), idle as materialized (
  select b.url
  from page p
  join pgexec.blobs b on b.url = p.url and b.xmin = p.version
  where b.doomed_at is null and b.touched_at < clock_timestamp() - $3::bigint * interval '1 microsecond'
    and not exists (select from pgexec.blob_refs f where f.sha256 = b.sha256)
  order by b.url
  for update of b skip locked
), doomed as (
  update pgexec.blobs b set doomed_at = clock_timestamp()
  from idle i
  where b.url = i.url
  returning 1
)
select turn.mine, count(p.url) as looked_at, max(p.url) as last_url, (select count(*) from doomed) as doomed
from turn left join page p on true
group by turn.mine
