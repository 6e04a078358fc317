-- Drops the table of our migrations; only when no migration is left in it.
drop table pgexec.schema_migration
