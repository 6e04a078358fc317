-- The next blobs whose bytes are to be removed from stores $2: a plain read by index.
select url, size from pgexec.blobs
where doomed_at is not null and url > $1 and store = any ($2::text[])
order by url
limit $3
