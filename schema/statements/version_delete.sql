-- Forgets one of our migrations in the transaction that undoes it; no row means that somebody
-- else undid it first.
delete from pgexec.schema_migration where version = $1
