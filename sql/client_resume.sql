-- Continues a paused run, with limits raised; the function locks the rows of its tree from the root down.
select pgexec.resume($1, $2, $3::float8::numeric, $4, $5, $6, $7, $8)
