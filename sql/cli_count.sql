-- What removing the schema would lose: a plain read, not exact while runs are added.
select pg_catalog.current_database()::text, count(*), count(*) filter (where finished_at is null)
from pgexec.runs
