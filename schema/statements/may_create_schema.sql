-- Whether this role could make the schema again after dropping it.
select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
