-- The definition of an agent as it is now: a plain read. A run pins what it got in its log.
select definition from pgexec.agents where name = $1
