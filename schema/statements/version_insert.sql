-- Records one of our migrations in the transaction that makes its changes. The primary key
-- ends a second transaction that applies the same one, should the migration lock be lost.
insert into pgexec.schema_migration (version, name) values ($1, $2)
