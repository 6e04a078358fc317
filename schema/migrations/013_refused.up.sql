-- What a definition cannot have is said when it is written, not by the first turn of a run.
create or replace function pgexec.header_problem(headers jsonb, path text) returns text
language sql immutable
set search_path = ''
as $$
  select case when secret
    then format('%s.%s is a text, must be an object {"env": "NAME"} or {"file": "/path"}: secrets are not stored', path, h.key)
    else format('%s.%s has a line break or another character that no header can have', path, h.key) end
  from jsonb_each(headers) h
  cross join lateral (select jsonb_typeof(h.value) = 'string' and lower(h.key) in ('api-key', 'authorization', 'cookie', 'proxy-authorization', 'x-api-key') as secret,
    coalesce(h.value ->> 'prefix', h.value #>> '{}') ~ '[\x01-\x08\x0a-\x1f\x7f]' as broken) _
  where secret or broken
  order by h.key collate "C"
  limit 1
$$;

create or replace function pgexec.agent_problem(definition jsonb) returns text
language plpgsql immutable security definer
set search_path = ''
as $$
declare
  problem text := coalesce(
    pgexec.schema_problem(pgexec.agent_schema(), pgexec.agent_schema(), definition, ''),
    pgexec.header_problem(definition -> 'headers', 'headers'),
    case when definition ->> 'base_url' ~ '[?#]' then 'base_url has a query or a fragment: a key belongs in api_key or headers' end,
    (select format('extra.%s cannot be set: it is what the conversation makes', name)
      from jsonb_object_keys(definition -> 'extra') name where name in ('model', 'messages', 'system', 'stream') order by name collate "C" limit 1),
    case when jsonb_typeof(definition #> '{extra,tools}') <> 'array' then 'extra.tools must be a list, of tools that the provider runs' end);
  tool jsonb;
  path text;
begin
  if problem is not null then
    return problem;
  end if;
  for i in 0 .. coalesce(jsonb_array_length(definition -> 'tools'), 0) - 1 loop
    tool := definition -> 'tools' -> i;
    path := format('tools[%s]', i);
    select format('%s.name is %s, as that of tools[%s]', path, tool -> 'name', n - 1) into problem
    from jsonb_array_elements(definition -> 'tools') with ordinality t (t, n)
    where n <= i and t -> 'name' = tool -> 'name';
    problem := coalesce(problem, pgexec.header_problem(tool -> 'headers', path || '.headers'));
    -- What names an argument has to name one that there is.
    problem := coalesce(problem, (
      select format('%s.%s[%s] is %s, which is not in parameters.properties', path, list, n - 1, pgexec.json_words(to_jsonb(name), true))
      from (values ('args'), ('query')) l (list)
      cross join lateral jsonb_array_elements_text(tool -> list) with ordinality e (name, n)
      where not coalesce(tool #> '{parameters,properties}' ? name, false)
      order by list, n
      limit 1));
    problem := coalesce(problem, (
      select format('%s.url has {%s}, which is not in parameters.properties', path, m[1])
      from regexp_matches(case tool ->> 'type' when 'http' then tool ->> 'url' end, '\{([^{}]*)\}', 'g') with ordinality _ (m, n)
      where not coalesce(tool #> '{parameters,properties}' ? m[1], false)
      order by n
      limit 1));
    problem := coalesce(problem, case when tool ->> 'type' in ('http', 'sql') and pgexec.duration_ms(tool ->> 'timeout') > 600000
      then path || '.timeout must be at most "10m"' end);
    if problem is not null then
      return problem;
    end if;
  end loop;
  return null;
end
$$;
