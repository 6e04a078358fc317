-- The stores that have blobs, but for those of $1: one read by index for each store.
with recursive s (store) as (
  select min(b.store) from pgexec.blobs b where b.doomed_at is null
  union all
  select (select min(b.store) from pgexec.blobs b where b.store > s.store and b.doomed_at is null) from s where s.store is not null
)
select s.store from s where s.store <> all ($1::text[]) order by s.store
