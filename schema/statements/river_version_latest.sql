-- River's newest applied migration; 0 when there is none.
-- (Before its version 5 the table has no column "line".)
select coalesce(max(version), 0)::integer from pgexec.river_migration m where coalesce(to_jsonb(m) ->> 'line', 'main') = 'main'
