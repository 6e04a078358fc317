-- Reserves a place for a content in a store, or touches the one that it has there, and has run $6 (null for none) refer to it, in one commit. Under the lock of the content's row and the unique index on store and content: a collector either sees the reference, or finds the row locked or of another version; a row that it has doomed counts as none, and the content gets place $1.
with referred as (
  insert into pgexec.blob_refs (run_id, sha256)
  select $6::uuid, $3::bytea
  where $6::uuid is not null
  on conflict (run_id, sha256) do update set touched_at = clock_timestamp()
)
insert into pgexec.blobs as b (url, store, sha256, size, media_type)
values ($1, $2, $3, $4, $5)
on conflict (store, sha256) where doomed_at is null do update set touched_at = clock_timestamp()
returning b.url, b.stored
