-- A message to a run, durable with the caller's transaction; the function takes the run's row lock and wakes or tells whoever can consume it.
select pgexec.signal($1, $2, $3::jsonb, $4, $5)
