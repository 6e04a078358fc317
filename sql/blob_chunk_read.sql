-- One piece of a blob that is in the database: a primary key read.
select bytes from pgexec.blob_chunks where url = $1 and n = $2
