-- How many bytes there are of a blob that is in the database, which are not read for it; null if there are none.
select sum(length(bytes))::bigint from pgexec.blob_chunks where url = $1
