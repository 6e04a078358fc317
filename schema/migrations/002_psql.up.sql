-- What psql and other plain SQL clients see of runs, logs and replicas.

-- Bytes as text, exact when they are UTF-8 without U+0000; each byte that is not, and each U+0000,
-- becomes U+FFFD. Never an error: in a database whose encoding lacks a character, the bytes are shown escaped.
create function pgexec.utf8_lossy(raw bytea) returns text
language plpgsql immutable strict
set search_path = ''
as $$
declare
  -- Each byte as two hex digits and a blank.
  hex text;
begin
  begin
    return convert_from(raw, 'UTF8');
  exception when others then
    null;
  end;
  hex := replace(regexp_replace(encode(raw, 'hex'), '(..)', '\1 ', 'g'), '00 ', 'ef bf bd ');
  -- A mark after each longest run of whole characters, and one for each byte outside of any.
  hex := regexp_replace(hex,
    '((?:[0-7]. |(?:c[2-9a-f]|d.) [89ab]. |(?:e0 [ab]|e[1-9a-cef] [89ab]|ed [89]). [89ab]. |(?:f0 [9ab]|f[1-3] [89ab]|f4 8). [89ab]. [89ab]. )+)|.. ',
    '\1!', 'g');
  hex := replace(replace(hex, ' !', ' '), '!', 'ef bf bd ');
  return convert_from(decode(hex, 'hex'), 'UTF8');
exception when others then
  return encode(raw, 'escape');
end
$$;

-- JSON bytes as jsonb, exact when jsonb can hold them. What it cannot hold is shown as far as it can be:
-- U+0000, lone surrogates and bytes that are not UTF-8 as U+FFFD, numbers out of range as strings, and
-- what is no JSON at all, or too deeply nested, as one string. Never an error.
create function pgexec.json_lossy(raw bytea) returns jsonb
language plpgsql immutable strict
set search_path = ''
as $$
declare
  plain text;
  doc text;
begin
  return convert_from(raw, 'UTF8')::jsonb;
exception when others then
  plain := pgexec.utf8_lossy(raw);
  begin
    -- With every escaped backslash spelt otherwise, each backslash begins an escape.
    doc := replace(replace(plain, '\\', '\u005c'), '\u0000', '\ufffd');
    doc := regexp_replace(doc, '\\u[dD][89abAB][[:xdigit:]]{2}(?!\\u[dD][c-fC-F][[:xdigit:]]{2})', '\\ufffd', 'g');
    doc := regexp_replace(doc, '(?<!\\u[dD][89abAB][[:xdigit:]]{2})\\u[dD][c-fC-F][[:xdigit:]]{2}', '\\ufffd', 'g');
    return doc::jsonb;
  exception
    when numeric_value_out_of_range then
      return pgexec.json_numbers_lossy(doc);
    when others then
      return to_jsonb(plain);
  end;
end
$$;

-- JSON text with its very long numbers, and those with a great exponent, as strings.
-- When that does not make it jsonb, all of it as one string.
create function pgexec.json_numbers_lossy(doc text) returns jsonb
language plpgsql immutable strict
set search_path = ''
as $$
declare
  -- A character that no JSON text has: after the next step a pair of them follows each string, and one
  -- stands on either side of each number in question.
  mark constant text := chr(1);
begin
  if strpos(doc, mark) > 0 then
    return to_jsonb(doc);
  end if;
  return replace(replace(regexp_replace(doc,
    '("(?:[^"\\]|\\.)*")|(-?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{5,}|-?[0-9]{200}[0-9]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?[0-9]+\.[0-9]{200}[0-9]*(?:[eE][-+]?[0-9]+)?)',
    '\1' || mark || '\2' || mark, 'g'), mark || mark, ''), mark, '"')::jsonb;
exception when others then
  return to_jsonb(doc);
end
$$;

-- One message of the record format, the bytes [first, after) of buf, as JSON text. Raises an error when they are
-- damaged, and with leniency 0 also when jsonb cannot hold a string or a payload; with 1 those are shown lossy, with 2
-- payloads are shown as strings. Fields this version does not know are skipped, enum values shown as numbers.
-- It inherits the empty search_path of pgexec.decode: a setting of its own would cost as much as the work.
create function pgexec.decode_message(buf bytea, first integer, after integer, message text, leniency integer) returns text
language plpgsql immutable strict
as $$
declare
  -- The message's fields by number: name, type, and for a message its name, for an enum its words from 1.
  -- Types: s string, i integer, b bool, t microseconds since 1970, x bytes shown in hex, y bytes shown in base64,
  -- j JSON text, e enum, m message; repeated ones are capitals.
  fields constant text[] := case message
    when 'Record' then '{{node,m,Node},{claim,m,Claim},{attempt_failed,m,AttemptFailed},{started,m,Started},
      {NULL,NULL,NULL},{control,m,Control},{finished,m,Finished}}'::text[]
    when 'Node' then '{{id,s,-},{kind,s,-},{parents,S,-},{status,e,"succeeded,failed,outcome_unknown,cancelled"},
      {output,m,Payload},{spawned,M,NodeSpec},{final,b,-},{error,m,Error},{attempt,i,-},{started_at,t,-},
      {finished_at,t,-},{usage,m,Usage},{replica_id,i,-},{signal_id,i,-},{child_run_id,s,-}}'::text[]
    when 'Payload' then '{{json,j,-},{message,m,TypedMessage},{blob,m,Blob}}'::text[]
    when 'NodeSpec' then '{{id,s,-},{kind,s,-},{parents,S,-},{join,e,all_done},{input,m,Payload},{input_refs,b,-},
      {retry,m,RetryPolicy},{at_most_once,e,"fail,ask,run_again"}}'::text[]
    when 'Usage' then '{{input_tokens,i,-},{output_tokens,i,-},{cost_nano_usd,i,-}}'::text[]
    when 'Claim' then '{{replica_id,i,-},{epoch,i,-},{at,t,-},{host,s,-},{dead_replica_id,i,-}}'::text[]
    when 'Error' then '{{message,s,-},{code,s,-},{stack,s,-},{permanent,b,-}}'::text[]
    when 'AttemptFailed' then '{{node_id,s,-},{attempt,i,-},{error,m,Error},{not_before,t,-},{started_at,t,-},
      {finished_at,t,-},{replica_id,i,-},{signal_id,i,-}}'::text[]
    when 'Started' then '{{node_id,s,-},{attempt,i,-},{at,t,-},{replica_id,i,-}}'::text[]
    when 'Control' then '{{kind,e,"paused,resumed,retried"},{reason,s,-},{at,t,-},{node_ids,S,-}}'::text[]
    when 'Finished' then '{{status,e,"succeeded,failed,cancelled"},{result_seq,i,-},{error,m,Error},{error_node_id,s,-},{at,t,-}}'::text[]
    when 'RetryPolicy' then '{{max_attempts,i,-},{min_backoff_us,i,-},{max_backoff_us,i,-}}'::text[]
    when 'Blob' then '{{url,s,-},{size,i,-},{sha256,x,-},{media_type,s,-}}'::text[]
    when 'TypedMessage' then '{{type_name,s,-},{value,y,-}}'::text[]
  end;
  pos integer := first;
  body text := '';
  -- What is gathered of the repeated fields, and their numbers: a message has at most one of either type.
  strings text[] := '{}';
  strings_number integer;
  messages text[] := '{}';
  messages_number integer;
  -- Groups that are open; nothing in one is known.
  groups integer := 0;
  number integer;
  wire integer;
  type text;
  n bigint;
  b integer;
  shift integer;
  value text;
begin
  while pos < after loop
    -- A varint: the field's number and its wire type.
    n := get_byte(buf, pos);
    pos := pos + 1;
    if n > 127 then
      n := n & 127;
      shift := 7;
      loop
        b := get_byte(buf, pos);
        pos := pos + 1;
        n := n | ((b & 127)::bigint << shift);
        exit when b < 128;
        shift := shift + 7;
        if shift > 28 then
          raise exception 'a field number is out of range' using errcode = 'data_corrupted';
        end if;
      end loop;
    end if;
    number := n >> 3;
    wire := n & 7;
    type := case groups when 0 then fields[number][2] end;

    if wire = 0 or wire = 2 then
      -- A varint: the value, or its length.
      n := get_byte(buf, pos);
      pos := pos + 1;
      if n > 127 then
        n := n & 127;
        shift := 7;
        loop
          b := get_byte(buf, pos);
          pos := pos + 1;
          n := n | ((b & 127)::bigint << shift);
          exit when b < 128;
          shift := shift + 7;
          if shift > 63 then
            raise exception 'a number is out of range' using errcode = 'data_corrupted';
          end if;
        end loop;
      end if;
    end if;

    if wire = 2 then
      if n < 0 or n > after - pos then
        raise exception 'a field is longer than its message' using errcode = 'data_corrupted';
      end if;
      if type = 's' or type = 'S' then
        if leniency > 0 then
          value := to_json(pgexec.utf8_lossy(substring(buf from pos + 1 for n::integer)));
        else
          value := to_json(convert_from(substring(buf from pos + 1 for n::integer), 'UTF8'));
        end if;
      elsif type = 'm' or type = 'M' then
        value := pgexec.decode_message(buf, pos, pos + n::integer, fields[number][3], leniency);
      elsif type = 'j' then
        if leniency = 0 then
          -- JSON by itself, lest a payload could close its field and open others.
          value := convert_from(substring(buf from pos + 1 for n::integer), 'UTF8')::json;
        elsif leniency = 1 then
          value := pgexec.json_lossy(substring(buf from pos + 1 for n::integer));
        else
          value := to_json(pgexec.utf8_lossy(substring(buf from pos + 1 for n::integer)));
        end if;
      elsif type = 'x' then
        value := to_json(encode(substring(buf from pos + 1 for n::integer), 'hex'));
      elsif type = 'y' then
        value := to_json(translate(encode(substring(buf from pos + 1 for n::integer), 'base64'), E'\n', ''));
      else
        value := null;
      end if;
      pos := pos + n::integer;
    elsif wire = 0 then
      if type = 'i' then
        value := n;
      elsif type = 't' then
        value := case when n between -62135596800000000 and 253402300799999999
          then to_json(to_char(timestamp '1970-01-01' + n * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
          else 'null' end;
      elsif type = 'e' then
        value := case when n between 1 and 99
          then coalesce(to_json(nullif(split_part(fields[number][3], ',', n::integer), '')), to_json(n))
          when n <> 0 then to_json(n) end;
      elsif type = 'b' then
        value := case n when 0 then 'false' else 'true' end;
      else
        value := null;
      end if;
    elsif wire = 1 then
      pos := pos + 8;
      value := null;
    elsif wire = 5 then
      pos := pos + 4;
      value := null;
    elsif wire = 3 then
      groups := groups + 1;
      value := null;
    elsif wire = 4 and groups > 0 then
      groups := groups - 1;
      value := null;
    else
      raise exception 'a field has wire type %', wire using errcode = 'data_corrupted';
    end if;

    if value is null then
      if number = 0 then
        raise exception 'a field has number 0' using errcode = 'data_corrupted';
      end if;
    elsif type = 'S' then
      strings := array_append(strings, value);
      strings_number := number;
    elsif type = 'M' then
      messages := array_append(messages, value);
      messages_number := number;
    elsif message = 'Payload' then
      body := value;
    else
      body := body || ',"' || fields[number][1] || '":' || value;
    end if;
  end loop;
  if pos <> after or groups > 0 then
    raise exception 'a field is longer than its message' using errcode = 'data_corrupted';
  end if;
  if message = 'Payload' then
    return coalesce(nullif(body, ''), 'null');
  end if;
  if strings_number is not null then
    body := body || ',"' || fields[strings_number][1] || '":[' || array_to_string(strings, ',') || ']';
  end if;
  if messages_number is not null then
    body := body || ',"' || fields[messages_number][1] || '":[' || array_to_string(messages, ',') || ']';
  end if;
  return '{' || substr(body, 2) || '}';
end
$$;

-- Any record as jsonb: {"node": {…}}, {"claim": {…}} and so on, with the fields of the record format. Times are ISO 8601 in
-- UTC, enums are lower-case words, a JSON payload is the JSON itself. Fields of later versions are left out.
-- Never an error: what jsonb cannot hold is shown as pgexec.json_lossy shows it, and a record that is damaged
-- gives {"corrupt": "why"}.
create function pgexec.decode(record bytea) returns jsonb
language plpgsql immutable strict
set search_path = ''
as $$
declare
  -- Out of line or not, the bytes are fetched once.
  buf constant bytea := record || ''::bytea;
  reason text;
begin
  for leniency in 0 .. 2 loop
    begin
      return pgexec.decode_message(buf, 0, length(buf), 'Record', leniency)::jsonb;
    exception
      when array_subscript_error then
        reason := 'the record ends within a field';
      when others then
        reason := sqlerrm;
    end;
  end loop;
  return jsonb_build_object('corrupt', reason);
end
$$;

-- The log decoded: one line for each node that is done. A damaged record shows as its seq and the error.
create view pgexec.nodes as
select
  l.run_id,
  l.seq,
  d.rec #>> '{node,id}' as node_id,
  d.rec #>> '{node,kind}' as kind,
  array(select jsonb_array_elements_text(d.rec #> '{node,parents}')) as parents,
  d.rec #>> '{node,status}' as status,
  d.rec #> '{node,output}' as output,
  coalesce(d.rec #>> '{node,error,message}', 'damaged record: ' || (d.rec ->> 'corrupt')) as error,
  (d.rec #>> '{node,attempt}')::bigint as attempt,
  coalesce((d.rec #>> '{node,usage,input_tokens}')::bigint, 0)
    + coalesce((d.rec #>> '{node,usage,output_tokens}')::bigint, 0) as tokens,
  coalesce((d.rec #>> '{node,usage,cost_nano_usd}')::numeric, 0) / 1000000000 as cost_usd,
  (d.rec #>> '{node,started_at}')::timestamptz as started_at,
  (d.rec #>> '{node,finished_at}')::timestamptz as finished_at,
  (d.rec #>> '{node,finished_at}')::timestamptz - (d.rec #>> '{node,started_at}')::timestamptz as duration,
  (d.rec #>> '{node,replica_id}')::bigint as replica_id
from pgexec.run_log l
-- Decoded once a row: "offset 0" keeps the planner from repeating the call in each column.
cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
-- The first byte of a node's record, so that the others are not decoded at all.
where substring(l.record from 1 for 1) = '\x0a';

-- One line a run: what it does, where, and why it waits.
create view pgexec.run_overview as
select
  r.run_id,
  r.kind,
  r.status,
  r.owner,
  p.host,
  -- The newest record's seq, from the primary key; null when the log is empty or was pruned.
  (select l.seq from pgexec.run_log l where l.run_id = r.run_id order by l.seq desc limit 1) as head,
  coalesce(r.finished_at, now()) - r.created_at as age,
  -- What is wanted of it comes first: that is on its way, whatever the run does.
  case coalesce(r.wanted, r.status)
    when 'cancel' then 'being cancelled' || coalesce(': ' || r.wanted_reason, '')
    when 'pause' then 'being paused' || coalesce(': ' || r.wanted_reason, '')
    when 'queued' then case
      when r.run_at > now() then 'scheduled at ' || to_char(r.run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
      when r.waiting_kinds is not null then 'no replica for kind ' || array_to_string(r.waiting_kinds, ', ')
      when r.orphaned_by is not null then 'replica ' || r.orphaned_by || ' died'
      else 'queued for ' || date_trunc('second', now() - greatest(r.run_at, r.created_at)) end
    when 'parked' then r.reason
    when 'paused' then coalesce(r.reason, 'paused')
  end as waits_for,
  greatest(r.epoch - 1, 0) as takeovers,
  -- Spent, child runs included, as of the last end or pause.
  r.input_tokens + r.output_tokens as tokens,
  r.cost_usd,
  r.nodes_done,
  r.error,
  r.queue,
  r.priority,
  r.labels,
  r.parent_run_id,
  r.parent_node_id,
  r.depth,
  r.created_by,
  r.created_at,
  r.started_at,
  r.finished_at
from pgexec.runs r
left join pgexec.replicas p on p.replica_id = r.owner;

-- One line a replica. Alive means that its session still holds its advisory lock in this database.
create view pgexec.replica_overview as
with locks as materialized (
  select l.objid
  from pg_locks l
  where l.locktype = 'advisory' and l.classid = 1885824376 and l.objsubid = 2 and l.granted
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
)
select
  p.replica_id,
  p.host,
  p.pid,
  p.version,
  exists (select from locks l where l.objid = p.replica_id::oid) as alive,
  p.draining,
  p.hot_runs,
  p.max_hot_runs,
  clock_timestamp() - p.heartbeat_at as heartbeat_age,
  p.kinds,
  p.queues,
  p.started_at
from pgexec.replicas p;
