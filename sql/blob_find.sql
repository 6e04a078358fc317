-- The places of a content, or the place of that URL, which hold all of its bytes: a plain read by index.
select url, size, sha256, media_type
from pgexec.blobs
where stored and doomed_at is null and (url = $1 or sha256 = $2)
order by url
