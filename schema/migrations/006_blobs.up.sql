-- Blobs: bytes that are too large for a record. The bytes are in one of several stores; what is where, and
-- which run refers to what, is here.

-- One row for each content in each store. It is there before the first byte is written and until after the last one is
-- removed, so that nothing in a store is ever forgotten. A URL is never used again: a content that comes back
-- after it was doomed gets another one, so that a late removal hits nothing that is needed.
create table pgexec.blobs (
  url        text primary key,
  -- The store's own URL.
  store      text not null,
  sha256     bytea not null check (length(sha256) = 32),
  size       bigint not null check (size >= 0),
  media_type text not null,
  -- All of its bytes are in the store.
  stored     boolean not null default false,
  -- When somebody last wanted it stored, or referred to it.
  touched_at timestamptz not null default clock_timestamp(),
  -- It is being removed: nobody may refer to it any more.
  doomed_at  timestamptz
);
create unique index blobs_content on pgexec.blobs (store, sha256) where doomed_at is null;
create index blobs_sha256 on pgexec.blobs (sha256);
create index blobs_doomed on pgexec.blobs (url) where doomed_at is not null;

-- Which run refers to which content. A row is committed before the record that refers, and touches the content's row in the
-- same transaction. One whose record never came is dropped once the run has ended.
create table pgexec.blob_refs (
  run_id     uuid not null references pgexec.runs on delete cascade,
  sha256     bytea not null,
  touched_at timestamptz not null default clock_timestamp(),
  -- The reference was found in the run's log, which does not change.
  logged     boolean not null default false,
  -- The reference is in the run's input or within another blob, which nobody looks through: it lives as long as the run.
  lasting    boolean not null default false,
  primary key (run_id, sha256)
);
create index blob_refs_sha256 on pgexec.blob_refs (sha256);
create index blob_refs_open on pgexec.blob_refs (run_id, sha256) where not (logged or lasting);

-- The bytes of the blobs that are in this database, in pieces. They do not get smaller by compression that is worth its time.
create table pgexec.blob_chunks (
  url   text not null,
  n     integer not null,
  bytes bytea not null,
  primary key (url, n)
);
alter table pgexec.blob_chunks alter column bytes set storage external;

-- Has a run refer to the blobs of these contents that are there. The content's row is touched under its lock before anything else, so that a
-- collector either sees the reference, or finds the row locked or of another version; rows are locked in the order of their URLs.
create function pgexec.hold_blobs(run_id uuid, contents bytea[], lasting boolean) returns void
language plpgsql volatile security definer
set search_path = ''
as $$
begin
  perform from pgexec.blobs b
  where b.sha256 = any (contents) and b.doomed_at is null
  order by b.url
  for no key update;
  with touched as (
    update pgexec.blobs b set touched_at = clock_timestamp()
    where b.sha256 = any (contents) and b.doomed_at is null
    returning b.sha256
  )
  insert into pgexec.blob_refs as f (run_id, sha256, lasting)
  select hold_blobs.run_id, t.sha256, hold_blobs.lasting
  from touched t
  group by t.sha256
  order by t.sha256
  on conflict on constraint blob_refs_pkey do update
  set touched_at = clock_timestamp(), lasting = f.lasting or excluded.lasting;
end
$$;
revoke execute on function pgexec.hold_blobs(uuid, bytea[], boolean) from public;

-- The contents of all {"$blob": {"sha256": …}} within a JSON document.
create function pgexec.blobs_in(doc jsonb) returns bytea[]
language sql immutable strict
set search_path = ''
as $$
  select coalesce(array_agg(distinct decode(h #>> '{}', 'hex')), '{}')
  from jsonb_path_query(doc, '$.**."$blob".sha256 ? (@ like_regex "^[0-9a-f]{64}$")') h
$$;
revoke execute on function pgexec.blobs_in(jsonb) from public;

-- A run may wait long for its first claim, and a signal for its run: they refer to the blobs they name from the start.
create function pgexec.runs_hold_blobs() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.hold_blobs(new.run_id, pgexec.blobs_in(new.input), true);
  return null;
end
$$;
create trigger runs_hold_blobs after insert on pgexec.runs
  for each row when (new.input @? '$.**."$blob"') execute function pgexec.runs_hold_blobs();

create function pgexec.signals_hold_blobs() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  perform pgexec.hold_blobs(new.run_id, pgexec.blobs_in(new.payload), false);
  return null;
end
$$;
create trigger signals_hold_blobs after insert on pgexec.signals
  for each row when (new.payload @? '$.**."$blob"') execute function pgexec.signals_hold_blobs();

-- Stores bytes in this database, once, and returns what a record holds of them: a message Blob.
create function pgexec.store_blob(run_id uuid, content bytea, media_type text) returns bytea
language plpgsql volatile
set search_path = ''
as $$
declare
  hash constant bytea := sha256(content);
  chunk constant integer := 1024 * 1024;
  place text;
  is_stored boolean;
begin
  insert into pgexec.blobs as b (url, store, sha256, size, media_type)
  values ('db:' || encode(hash, 'hex') || '-' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 8), 'db:', hash, length(content), store_blob.media_type)
  on conflict (store, sha256) where doomed_at is null do update set touched_at = clock_timestamp()
  returning b.url, b.stored into place, is_stored;
  perform pgexec.hold_blobs(store_blob.run_id, array[hash], false);
  if not is_stored then
    insert into pgexec.blob_chunks (url, n, bytes)
    select place, i, substring(content from i * chunk + 1 for chunk)
    from generate_series(0, greatest(length(content) - 1, 0) / chunk) i
    on conflict do nothing;
    update pgexec.blobs b set stored = true where b.url = place;
  end if;
  return '\x0a' || pgexec.varint(length(convert_to(place, 'UTF8'))) || convert_to(place, 'UTF8')
    || '\x10' || pgexec.varint(length(content))
    || '\x1a20' || hash
    || '\x22' || pgexec.varint(length(convert_to(store_blob.media_type, 'UTF8'))) || convert_to(store_blob.media_type, 'UTF8');
end
$$;
revoke execute on function pgexec.store_blob(uuid, bytea, text) from public;

-- The bytes of a blob that is in this database, by its URL or its SHA-256 in hex; null if there is none.
create function pgexec.blob_bytes(blob text) returns bytea
language plpgsql stable strict
set search_path = ''
as $$
declare
  found_url text;
  expected bigint;
  content bytea;
begin
  select b.url, b.size into found_url, expected
  from pgexec.blobs b
  where b.store = 'db:' and b.stored and b.doomed_at is null
    and (b.url = blob or b.sha256 = case when blob ~ '^[0-9a-fA-F]{64}$' then decode(blob, 'hex') end);
  if not found then
    return null;
  end if;
  select string_agg(c.bytes, '' order by c.n) into content from pgexec.blob_chunks c where c.url = found_url;
  if coalesce(length(content), -1) <> expected then
    raise exception 'blob % is altered: % bytes, not %', found_url, coalesce(length(content), 0), expected
      using errcode = 'data_corrupted';
  end if;
  return content;
end
$$;

-- A node's record with another output, as JSON, which goes to a blob when it is too large for a record: of a field
-- that is there twice the last one counts.
drop function pgexec.with_output(bytea, jsonb);
create function pgexec.with_output(record bytea, output jsonb, run_id uuid) returns bytea
language plpgsql volatile strict
set search_path = ''
as $$
declare
  json bytea := convert_to(output::text, 'UTF8');
  payload bytea;
  start integer := 1;
  node bytea;
begin
  if length(json) > 32768 then
    payload := pgexec.store_blob(run_id, json, 'application/json');
    payload := '\x1a' || pgexec.varint(length(payload)) || payload;
  else
    payload := '\x0a' || pgexec.varint(length(json)) || json;
  end if;
  -- The record is one field, the node: its tag, its length in as many bytes as have their high bit set and one more, itself.
  while get_byte(record, start) > 127 loop
    start := start + 1;
  end loop;
  node := substring(record from start + 2) || '\x2a' || pgexec.varint(length(payload)) || payload;
  return '\x0a' || pgexec.varint(length(node)) || node;
end
$$;
revoke execute on function pgexec.with_output(bytea, jsonb, uuid) from public;

-- Makes a new run that begins with the records 1 to at_seq of another one (all it has, if at_seq is null) and goes on
-- from there on its own: nothing in that prefix is executed again, ended child runs are in it as results.
-- The output of one node in the prefix can be replaced. The end of a run is never part of a prefix: a fork
-- of a whole run ends again, with the same result. Returns the new run's id. Reads the log without a lock: what is there does not change.
create or replace function pgexec.fork(run_id uuid, at_seq bigint default null, replace_node text default null, replace_output jsonb default null)
returns uuid
language plpgsql volatile security definer
set search_path = ''
as $$
declare
  source pgexec.runs;
  head bigint;
  last bigint;
  at_replaced bigint;
  id uuid := pgexec.uuid7();
begin
  select * into source from pgexec.runs r where r.run_id = fork.run_id;
  if not found then
    raise exception 'run % does not exist', fork.run_id using errcode = 'foreign_key_violation';
  end if;
  head := coalesce((select l.seq from pgexec.run_log l where l.run_id = fork.run_id order by l.seq desc limit 1), 0);
  last := coalesce(fork.at_seq, head);
  if last < 1 or last > head then
    raise exception 'at_seq % is not in the log of run %, which has the records 1 to %', last, fork.run_id, head
      using errcode = 'invalid_parameter_value';
  end if;
  if (select substring(l.record from 1 for 1) = '\x3a' from pgexec.run_log l where l.run_id = fork.run_id and l.seq = last) then
    last := last - 1;
  end if;
  if (replace_node is null) <> (replace_output is null) then
    raise exception 'replace_node and replace_output go together' using errcode = 'invalid_parameter_value';
  end if;
  if replace_node is not null then
    select l.seq into at_replaced
    from pgexec.run_log l
    cross join lateral (select pgexec.decode(l.record) -> 'node' as node offset 0) d
    where l.run_id = fork.run_id and l.seq <= last and substring(l.record from 1 for 1) = '\x0a'
      and d.node ->> 'id' = replace_node and d.node ->> 'status' = 'succeeded';
    if not found then
      raise exception 'node % has not succeeded in the records 1 to % of run %: there is no output to replace', replace_node, last, fork.run_id
        using errcode = 'invalid_parameter_value';
    end if;
  end if;

  insert into pgexec.runs (run_id, kind, input, max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline, max_parallel,
    soft_limit, priority, queue, labels, traceparent)
  values (id, source.kind, source.input, source.max_tokens, source.max_cost_usd, source.max_nodes, source.max_wall_ms, source.deadline,
    source.max_parallel, source.soft_limit, source.priority, source.queue, source.labels, source.traceparent);
  -- Before the records that refer to them: a prune that comes in between leaves no record to copy.
  perform pgexec.hold_blobs(id, array_agg(f.sha256), f.lasting)
  from pgexec.blob_refs f
  where f.run_id = fork.run_id
  group by f.lasting;
  perform pgexec.hold_blobs(id, pgexec.blobs_in(replace_output), true);
  insert into pgexec.run_log (run_id, seq, record)
  select id, l.seq, case when l.seq = at_replaced then pgexec.with_output(l.record, replace_output, id) else l.record end
  from pgexec.run_log l
  where l.run_id = fork.run_id and l.seq <= last;
  -- The claims in the prefix count: an epoch is the number of claims so far.
  update pgexec.runs r
  set forked_from = source.run_id, forked_at_seq = last,
    epoch = (select count(*) from pgexec.run_log l where l.run_id = id and substring(l.record from 1 for 1) = '\x12')
  where r.run_id = id;
  return id;
end
$$;

-- A payload in a blob is shown as the value that stands for it: {"$blob": {…}}.
do $$
declare
  definition text := pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure);
  changed text := replace(definition, 'body := value;', 'body := case number when 3 then ''{"$blob":'' || value || ''}'' else value end;');
begin
  if changed = definition then
    raise exception 'pgexec.decode_message is not what migration 002 made it';
  end if;
  execute changed;
end
$$;
