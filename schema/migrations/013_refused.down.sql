create or replace function pgexec.header_problem(headers jsonb, path text) returns text
language sql immutable
set search_path = ''
as $$
  select format('%s.%s is a text, must be an object {"env": "NAME"} or {"file": "/path"}: secrets are not stored', path, h.key)
  from jsonb_each(headers) h
  where jsonb_typeof(h.value) = 'string' and lower(h.key) in ('api-key', 'authorization', 'cookie', 'proxy-authorization', 'x-api-key')
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
    pgexec.header_problem(definition -> 'headers', 'headers'));
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
    if problem is not null then
      return problem;
    end if;
  end loop;
  return null;
end
$$;
