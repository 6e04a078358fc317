-- Drops the schema, and fails when something that is not ours is in it.
drop schema pgexec
