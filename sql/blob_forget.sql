-- Forgets blobs whose bytes have been removed. Their URLs are never used again.
delete from pgexec.blobs where url = any ($1::text[]) and doomed_at is not null
