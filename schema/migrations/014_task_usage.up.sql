-- Workers say what their tasks have used.

-- What an attempt has used, as a worker says it: a JSON Schema, as far as pgexec.schema_problem knows it.
create function pgexec.usage_schema() returns jsonb
language sql immutable parallel safe
return $json$
{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$anchor": "usage",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "input_tokens": {"description": "Cached ones and those written to the cache included.", "$ref": "#/$defs/tokens"},
    "cached_tokens": {"description": "Those of the input that were read from the provider's cache.", "$ref": "#/$defs/tokens"},
    "cache_write_tokens": {"description": "Those of the input that were written to it.", "$ref": "#/$defs/tokens"},
    "output_tokens": {"description": "Reasoning included.", "$ref": "#/$defs/tokens"},
    "reasoning_tokens": {"description": "Those of the output that were reasoning.", "$ref": "#/$defs/tokens"},
    "cost_usd": {"description": "US dollars.", "type": "number", "minimum": 0, "maximum": 1000000},
    "provider": {"description": "With model: of pgexec.model_prices, which tells the cost where cost_usd is not given.", "$ref": "#/$defs/name"},
    "model": {"$ref": "#/$defs/name"}
  },
  "$defs": {
    "tokens": {"type": "integer", "minimum": 0, "maximum": 1000000000000},
    "name": {"title": "a text of 1 to 256 characters", "type": "string", "minLength": 1, "maxLength": 256}
  }
}
$json$::jsonb;

-- What is wrong with what a worker says that it has used, in words; null if nothing is.
create function pgexec.usage_problem(usage jsonb) returns text
language sql immutable
set search_path = ''
as $$
  select coalesce(
    pgexec.schema_problem(pgexec.usage_schema(), pgexec.usage_schema(), usage, 'usage'),
    case
      when coalesce((usage -> 'cached_tokens')::bigint, 0) + coalesce((usage -> 'cache_write_tokens')::bigint, 0) > coalesce((usage -> 'input_tokens')::bigint, 0) then
        format('usage.input_tokens is %s, must be at least cached_tokens and cache_write_tokens together: it includes them', coalesce(usage ->> 'input_tokens', 'not there'))
      when (usage -> 'reasoning_tokens')::bigint > coalesce((usage -> 'output_tokens')::bigint, 0) then
        format('usage.output_tokens is %s, must be at least reasoning_tokens: it includes them', coalesce(usage ->> 'output_tokens', 'not there'))
      when usage ? 'provider' <> usage ? 'model' then 'usage.provider and usage.model go together'
    end)
$$;

-- What a worker says that it has used as the record format has it; null for nothing. What is null in it is as if it were not
-- there. The cost is cost_usd, else that of the prices; where neither is known the record says so.
create function pgexec.task_usage(usage jsonb) returns jsonb
language plpgsql stable
set search_path = ''
as $$
declare
  said constant jsonb := nullif(jsonb_strip_nulls(usage), 'null');
  problem constant text := pgexec.usage_problem(said);
  cost numeric;
begin
  if problem is not null then
    raise exception '%', problem using errcode = 'invalid_parameter_value';
  elsif coalesce(said, '{}') = '{}' then
    return null;
  end if;
  cost := coalesce((said -> 'cost_usd')::numeric, pgexec.model_cost(said ->> 'provider', said ->> 'model',
    coalesce((said -> 'input_tokens')::bigint, 0), coalesce((said -> 'cached_tokens')::bigint, 0), coalesce((said -> 'cache_write_tokens')::bigint, 0),
    coalesce((said -> 'output_tokens')::bigint, 0)));
  return jsonb_strip_nulls(jsonb_build_object(
    'input_tokens', (said -> 'input_tokens')::bigint, 'output_tokens', (said -> 'output_tokens')::bigint,
    'cached_tokens', (said -> 'cached_tokens')::bigint, 'reasoning_tokens', (said -> 'reasoning_tokens')::bigint,
    'cost_nano_usd', pgexec.nano_usd(cost), 'unpriced', case when cost is null then 1 end));
end
$$;
revoke execute on function pgexec.task_usage(jsonb) from public;

-- What a task that has ended has used, as its record will have it.
alter table pgexec.tasks add column usage jsonb;

drop function pgexec.complete(bigint, text, json);
-- Ends a task with its output, and with what it has used. True when it counts, also when that was said before by the same
-- worker; false when the task is gone: its run has ended or is to, or what came of the task is recorded. An error when
-- another worker took it. A lease that has expired does not matter as long as nobody else took the task.
create function pgexec.complete(task_id bigint, worker text, output json default 'null', usage jsonb default null) returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  used constant jsonb := pgexec.task_usage(complete.usage);
  task pgexec.tasks;
begin
  perform pgexec.check_size('the output of task ' || complete.task_id, octet_length(complete.output::text));
  task := pgexec.lock_task(complete.task_id, complete.worker);
  if task.task_id is null or task.state = 'succeeded' then
    return task.task_id is not null;
  elsif task.state = 'failed' then
    raise exception 'task % has failed already: %', task.task_id, task.error using errcode = 'object_not_in_prerequisite_state';
  end if;
  update pgexec.tasks t
  set state = 'succeeded', ended_at = clock_timestamp(), output = coalesce(complete.output, 'null'), usage = used
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;

drop function pgexec.fail(bigint, text, text, boolean, interval);
-- Ends an attempt with an error, and with what it has used all the same. The node is tried again by the policy of its
-- kind, or no earlier than after retry_after; a permanent error fails it at once. The answer is that of pgexec.complete.
create function pgexec.fail(task_id bigint, worker text, error text, permanent boolean default false, retry_after interval default null,
  usage jsonb default null)
returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  used constant jsonb := pgexec.task_usage(fail.usage);
  task pgexec.tasks := pgexec.lock_task(fail.task_id, fail.worker);
begin
  if task.task_id is null or task.state = 'failed' then
    return task.task_id is not null;
  elsif task.state = 'succeeded' then
    raise exception 'task % has succeeded already', task.task_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  update pgexec.tasks t
  set state = 'failed', ended_at = clock_timestamp(), error = coalesce(fail.error, ''), error_code = 'error',
    permanent = coalesce(fail.permanent, false), retry_after = fail.retry_after, usage = used
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;
