-- Our applied migrations, oldest first.
select version, name, applied_at from pgexec.schema_migration order by version
