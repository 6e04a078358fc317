-- One run, as an application would add it.
insert into pgexec.runs (kind, input, labels) values ('agent', $1, jsonb_build_object('name', $2::text)) returning run_id
