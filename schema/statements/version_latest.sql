-- Our newest applied migration; 0 when there is none.
select coalesce(max(version), 0) from pgexec.schema_migration
