-- Lets every role that may use the schema see its version, so that a client can check it.
grant select on pgexec.schema_migration to public
