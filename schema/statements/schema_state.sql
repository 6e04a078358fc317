-- Says which of the schema and the two version tables exist, and whether this role may read
-- the tables. Reads the catalog only, so that it works for any role and before any migration.
select
  pg_catalog.current_database()::text,
  exists (select from pg_catalog.pg_namespace where nspname = 'pgexec') as has_schema,
  (select pg_catalog.has_table_privilege(c.oid, 'select')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgexec' and c.relname = 'schema_migration') as reads_ours,
  (select pg_catalog.has_table_privilege(c.oid, 'select')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgexec' and c.relname = 'river_migration') as reads_river
