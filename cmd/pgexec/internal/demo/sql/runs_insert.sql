-- All runs of the demo, in one statement and one commit.
insert into pgexec.runs (kind, input, labels)
select 'graph', input, jsonb_build_object('name', name)
from unnest($1::text[], $2::jsonb[]) as r (name, input)
returning labels ->> 'name', run_id
