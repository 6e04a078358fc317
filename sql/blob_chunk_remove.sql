-- Removes a bounded number of the pieces of a doomed blob from the database.
delete from pgexec.blob_chunks
where url = $1 and n in (select n from pgexec.blob_chunks where url = $1 order by n desc limit $2)
