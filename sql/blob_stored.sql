-- Says that all bytes are at a place, unless a collector has doomed it meanwhile: then no row is changed.
update pgexec.blobs set stored = true, touched_at = clock_timestamp()
where url = $1 and doomed_at is null
