do $$
begin
  execute replace(pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure),
    'body := case number when 3 then ''{"$blob":'' || value || ''}'' else value end;', 'body := value;');
end
$$;

-- The functions of forks as they were.
drop function pgexec.with_output(bytea, jsonb, uuid);
-- A node's record with another output, as JSON: of a field that is there twice the last one counts.
create function pgexec.with_output(record bytea, output jsonb) returns bytea
language plpgsql immutable strict
set search_path = ''
as $$
declare
  json bytea := convert_to(output::text, 'UTF8');
  payload bytea := '\x0a' || pgexec.varint(length(json)) || json;
  start integer := 1;
  node bytea;
begin
  -- The record is one field, the node: its tag, its length in as many bytes as have their high bit set and one more, itself.
  while get_byte(record, start) > 127 loop
    start := start + 1;
  end loop;
  node := substring(record from start + 2) || '\x2a' || pgexec.varint(length(payload)) || payload;
  return '\x0a' || pgexec.varint(length(node)) || node;
end
$$;
revoke execute on function pgexec.with_output(bytea, jsonb) from public;
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
  insert into pgexec.run_log (run_id, seq, record)
  select id, l.seq, case when l.seq = at_replaced then pgexec.with_output(l.record, replace_output) else l.record end
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

drop trigger signals_hold_blobs on pgexec.signals;
drop trigger runs_hold_blobs on pgexec.runs;
drop function pgexec.signals_hold_blobs();
drop function pgexec.runs_hold_blobs();
drop function pgexec.blob_bytes(text);
drop function pgexec.store_blob(uuid, bytea, text);
drop function pgexec.blobs_in(jsonb);
drop function pgexec.hold_blobs(uuid, bytea[], boolean);
drop table pgexec.blob_chunks;
drop table pgexec.blob_refs;
drop table pgexec.blobs;
