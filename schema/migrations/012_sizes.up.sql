-- How large what reaches a run from outside may be, and how it reaches a replica: what is small with many others in one answer,
-- the rest by itself, so that no answer is longer than a replica, or the protocol, can take.

-- Refuses JSON that has more bytes as text than one message may have: what a run can be given it can read.
create function pgexec.check_size(what text, doc_bytes bigint) returns void
language plpgsql immutable
set search_path = ''
as $$
declare
  most constant bigint := 134217728;
begin
  if doc_bytes > most then
    raise exception '% has % bytes as text, the limit is % (128 MiB): store it as a blob and pass the value that stands for it', what, doc_bytes, most
      using errcode = 'program_limit_exceeded';
  end if;
end
$$;
revoke execute on function pgexec.check_size(text, bigint) from public;

-- The length of a document as text; of one that has no text, because that would be over 1 GiB, as if it had that.
create function pgexec.text_bytes(doc jsonb) returns bigint
language plpgsql immutable strict
set search_path = ''
as $$
begin
  return octet_length(doc::text);
exception when program_limit_exceeded then
  return 1073741824;
end
$$;
revoke execute on function pgexec.text_bytes(jsonb) from public;

-- The text of a document that is small, else null. Its stored size comes first: what is large is not even fetched. Without a search path of
-- their own these are part of the statement that uses them.
create function pgexec.small_text(doc jsonb) returns text
language sql stable
as $$
  select case when pg_catalog.pg_column_size(doc) <= 16384 then case when pg_catalog.octet_length(doc::text) <= 65536 then doc::text end end
$$;
create function pgexec.small_text(doc json) returns text
language sql stable
as $$
  select case when pg_catalog.pg_column_size(doc) <= 16384 then case when pg_catalog.octet_length(doc::text) <= 65536 then doc::text end end
$$;

create function pgexec.runs_check_size() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.check_size('the input of run ' || new.run_id, pgexec.text_bytes(new.input));
  return new;
end
$$;
-- What is shorter cannot have a text that is too long: a number of 12 bytes has 131,072 digits at most.
create trigger runs_check_size before insert or update of input on pgexec.runs
  for each row when (pg_column_size(new.input) > 8192) execute function pgexec.runs_check_size();

create function pgexec.signals_check_size() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.check_size('the payload of signal ' || quote_literal(left(new.name, 100)), pgexec.text_bytes(new.payload));
  return new;
end
$$;
create trigger signals_check_size before insert or update of payload on pgexec.signals
  for each row when (pg_column_size(new.payload) > 8192) execute function pgexec.signals_check_size();

-- A worker's output is checked before anything is locked.
do $$
declare
  definition text := pg_get_functiondef('pgexec.complete(bigint, text, json)'::regprocedure);
  changed text := replace(definition, 'declare
  task pgexec.tasks := pgexec.lock_task(complete.task_id, complete.worker);
begin
', 'declare
  task pgexec.tasks;
begin
  perform pgexec.check_size(''the output of task '' || complete.task_id, octet_length(complete.output::text));
  task := pgexec.lock_task(complete.task_id, complete.worker);
');
begin
  if changed = definition then
    raise exception 'pgexec.complete is not what migration 007 made it';
  end if;
  execute changed;
end
$$;

-- And that of a fork.
do $$
declare
  definition text := pg_get_functiondef('pgexec.with_output(bytea, jsonb, uuid)'::regprocedure);
  changed text := replace(definition, '
begin
  if length(json) > 32768', '
begin
  perform pgexec.check_size(''replace_output'', length(json));
  if length(json) > 32768');
begin
  if changed = definition then
    raise exception 'pgexec.with_output is not what migration 006 made it';
  end if;
  execute changed;
end
$$;
