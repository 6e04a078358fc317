-- Makes the schema. Runs only when it is missing: a role that merely owns an empty schema
-- may not even ask for "if not exists". The migration lock excludes a second maker.
create schema pgexec
