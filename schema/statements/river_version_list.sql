-- River's applied migrations, oldest first.
-- (Before its version 5 the table has no column "line".)
select version::integer, ''::text, created_at from pgexec.river_migration m where coalesce(to_jsonb(m) ->> 'line', 'main') = 'main' order by version
