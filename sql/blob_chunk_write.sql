-- One piece of a blob that is in the database, unless a collector has doomed it; whoever writes it again writes the same bytes, so that a row which has others is mended.
insert into pgexec.blob_chunks as c (url, n, bytes)
select $1, $2, $3
where exists (select from pgexec.blobs b where b.url = $1 and b.doomed_at is null)
on conflict (url, n) do update set bytes = excluded.bytes where c.bytes <> excluded.bytes
