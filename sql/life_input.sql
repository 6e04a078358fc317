-- The input of run $1, whatever its size: a plain read by primary key.
select coalesce(r.input, 'null')::text from pgexec.runs r where r.run_id = $1
