-- Asks for the end of a run and all runs below it; the function locks their rows from the root down.
select pgexec.cancel($1, $2)
