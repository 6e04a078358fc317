-- Asks a run and all runs below it to stop between nodes; the function locks their rows from the root down.
select pgexec.pause($1, $2)
