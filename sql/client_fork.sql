-- A new run that begins with a prefix of another one's log; the function copies the records and the run's row in one transaction.
select pgexec.fork($1, $2, $3, $4::jsonb)
