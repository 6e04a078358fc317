-- Makes the table of our migrations; its primary key lets each one land once.
create table if not exists pgexec.schema_migration (
  version    integer primary key check (version > 0),
  name       text not null,
  applied_at timestamptz not null default clock_timestamp()
)
