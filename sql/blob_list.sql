-- The blobs that a run refers to, or may still refer to, in the order of their contents: a plain read by index.
select b.url, b.size, b.sha256, b.media_type
from pgexec.blob_refs f
join pgexec.blobs b on b.sha256 = f.sha256 and b.stored and b.doomed_at is null
where f.run_id = $1
order by b.sha256, b.url
