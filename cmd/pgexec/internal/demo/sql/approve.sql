-- Approves a call, as a person would.
select pgexec.approve($1, $2)
