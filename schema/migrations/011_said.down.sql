create or replace function pgexec.result_text(output jsonb) returns text
language sql immutable parallel safe
set search_path = ''
as $$
  select case
    when jsonb_typeof(output) <> 'object' then output #>> '{}'
    when jsonb_typeof(output -> 'content') = 'array' then pgexec.content_text(output -> 'content')
    when output ? 'body' and output ? 'status' then output ->> 'body'
    when output ? 'command' and output -> 'columns' = '[]' then format('%s: %s rows', output ->> 'command', output ->> 'row_count')
    when output ? 'rows' and output ? 'command' then output ->> 'rows'
    when jsonb_typeof(output -> 'text') = 'string' then output ->> 'text'
    else output::text
  end
$$;

create or replace function pgexec.conversation(run_id uuid)
returns table (seq bigint, node_id text, role text, text text, calls jsonb, call_id text, is_error boolean,
  input_tokens bigint, cached_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cost_usd numeric)
language sql stable
set search_path = ''
as $$
  with done as materialized (
    select r.seq, r.node_id, r.node ->> 'kind' as kind, r.node ->> 'status' <> 'succeeded' as failed,
      case when r.node ->> 'status' = 'succeeded' then pgexec.payload_json(r.node -> 'output') end as output,
      r.node #>> '{error,message}' as error
    from pgexec.last_records(conversation.run_id) r
  ), start as (
    select d.seq, d.output, pgexec.payload_json(r.input) as input
    from pgexec.runs r
    left join done d on d.node_id = 'root'
    where r.run_id = conversation.run_id and r.kind = 'agent'
  ), turns as (
    select d.seq, d.node_id, substr(d.node_id, length('turn-') + 1)::integer as n, d.output, d.failed, d.error,
      pgexec.message_calls(d.output -> 'message') as calls
    from done d
    where d.kind = 'turn' and d.node_id ~ '^turn-[0-9]+$'
  ), results as (
    -- A call that went on in another node ends with that one.
    select distinct on (regexp_replace(d.node_id, '(-next)+$', '')) regexp_replace(d.node_id, '(-next)+$', '') as call_node,
      d.seq, d.node_id, d.failed, d.output, d.error
    from done d
    where d.node_id ~ '^call-[0-9]+-[0-9]+(-next)*$'
    order by regexp_replace(d.node_id, '(-next)+$', ''), d.seq desc
  ), said (seq, pos, node_id, role, text, calls, call_id, is_error, spent) as (
    select s.seq, n, 'root', m ->> 'role',
      coalesce(pgexec.content_text(m -> 'parts'), pgexec.content_text(m #> '{raw,content}')),
      pgexec.message_calls(m -> 'raw'), m ->> 'call_id', (m ->> 'is_error')::boolean, null::jsonb
    from start s cross join lateral jsonb_array_elements(s.output -> 'history') with ordinality h (m, n)
    union all
    select s.seq, 100000 + n, 'root', m ->> 'role', pgexec.content_text(m -> 'content'), null, null, null, null
    from start s
    cross join lateral jsonb_array_elements(
      coalesce(s.input -> 'messages', jsonb_build_array(jsonb_build_object('role', 'user', 'content', s.input -> 'prompt')))) with ordinality i (m, n)
    union all
    select t.seq, 0, t.node_id, 'note', t.output ->> 'note', null, null, null, null
    from turns t where t.output ? 'note'
    union all
    select t.seq, 1, t.node_id, 'assistant',
      coalesce(pgexec.content_text(t.output #> '{message,content}'), t.output ->> 'refusal', t.output ->> 'overflow', t.error),
      t.calls, null, case when t.failed or t.output ? 'overflow' then true end, t.output
    from turns t where t.failed or t.output ?| array['message', 'overflow']
    union all
    -- One result for each call: of its node, or why it has none.
    select coalesce(r.seq, t.seq), 1 + c.n, coalesce(r.node_id, t.node_id), 'tool',
      coalesce(r.error, case when r.node_id is not null then coalesce(pgexec.result_text(r.output), '(no output)') end, 'not run: ' || coalesce(
        case when c.n > coalesce((t.output ->> 'held_from')::integer, 0) then t.output ->> 'held' end, t.output ->> 'refused', a.error, 'the call is not valid')),
      null, c.call ->> 'id', case when r.failed or r.node_id is null or r.output ->> 'is_error' = 'true' then true end, null
    from turns t
    cross join lateral jsonb_array_elements(t.calls) with ordinality c (call, n)
    left join results r on r.call_node = format('call-%s-%s', t.n, c.n)
    left join done a on a.node_id = format('approval-%s-%s', t.n, c.n)
    -- A call that is still to be made has no result yet.
    where r.node_id is not null or a.failed or t.output ? 'refused'
      or t.output ? 'held' and c.n > coalesce((t.output ->> 'held_from')::integer, 0)
      or t.n < (select max(later.n) from turns later)
    union all
    -- A message that says nothing is shown as the JSON that it is; in the inbox, null is none.
    select d.seq, 0, d.node_id, 'user', coalesce(nullif(pgexec.content_text(d.output), ''), d.output::text), null, null, null, null
    from done d
    where d.kind = 'signal' and (d.node_id ~ '^message-[0-9]+$' or d.node_id ~ '^inbox-[0-9]+$' and jsonb_typeof(d.output) <> 'null')
    union all
    select d.seq, 0, d.node_id, 'summary', coalesce(d.output ->> 'summary', d.error), null, null, case when d.failed then true end, d.output
    from done d where d.kind = 'compact'
  )
  select s.seq, s.node_id, s.role, s.text, s.calls, s.call_id, s.is_error,
    (s.spent #>> '{usage,input}')::bigint, (s.spent #>> '{usage,cached_read}')::bigint,
    (s.spent #>> '{usage,output}')::bigint, (s.spent #>> '{usage,reasoning}')::bigint, (s.spent ->> 'cost_usd')::numeric
  from said s
  order by s.seq nulls first, s.pos
$$;
