-- Agents: their definitions, what is valid in one, the limits and prices of their runs, and what psql shows of
-- their conversations.

-- What an agent's definition is: a JSON Schema, as far as pgexec.schema_problem knows it. The Go package
-- definition has the same one.
create function pgexec.agent_schema() returns jsonb
language sql immutable parallel safe
return $json$
{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$anchor": "definition",
  "type": "object",
  "additionalProperties": false,
  "required": ["provider", "model"],
  "properties": {
    "provider": {
      "description": "The wire format: openai is chat completions, which most other servers speak too.",
      "type": "string",
      "enum": ["openai", "anthropic"]
    },
    "base_url": {
      "description": "Where the API begins. Defaults to the provider's own.",
      "$ref": "#/$defs/url"
    },
    "api_key": {
      "description": "Where the replica finds the key. None for a server that asks for none.",
      "$ref": "#/$defs/secret"
    },
    "model": {
      "description": "As the provider names it.",
      "$ref": "#/$defs/name"
    },
    "system": {
      "description": "The system prompt.",
      "type": "string"
    },
    "interactive": {
      "description": "Waits for the next user message, a signal named message, instead of ending.",
      "type": "boolean"
    },
    "tools": {
      "description": "What the model may call.",
      "type": "array",
      "maxItems": 128,
      "items": {"$ref": "#/$defs/tool"}
    },
    "parallel_tool_calls": {
      "description": "Whether a turn may have several calls. Left to the provider if absent.",
      "type": "boolean"
    },
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "max_output_tokens": {
      "description": "Bounds one answer of the model.",
      "$ref": "#/$defs/count"
    },
    "effort": {
      "description": "How much the model is to think, in the provider's words.",
      "$ref": "#/$defs/name"
    },
    "extra": {
      "description": "Fields of the request that are sent as they are.",
      "type": "object"
    },
    "headers": {
      "description": "HTTP headers sent to the provider.",
      "$ref": "#/$defs/headers"
    },
    "limits": {
      "description": "Limits of a run, unless its row in pgexec.runs has its own.",
      "type": "object",
      "default": {},
      "additionalProperties": false,
      "properties": {
        "max_turns": {"description": "Model turns.", "$ref": "#/$defs/count", "default": 50},
        "max_tool_calls": {"description": "Tool calls.", "$ref": "#/$defs/count", "default": 200},
        "max_tokens": {"description": "Input and output tokens together, sub-agents included.", "$ref": "#/$defs/tokens"},
        "max_cost_usd": {"description": "Cost by pgexec.model_prices, sub-agents included.", "$ref": "#/$defs/usd"},
        "max_wall": {"description": "Active time: while a replica owns the run.", "$ref": "#/$defs/duration"}
      }
    },
    "context": {
      "description": "When a conversation is summarised.",
      "type": "object",
      "default": {},
      "additionalProperties": false,
      "properties": {
        "window": {"description": "The model's window, in tokens.", "$ref": "#/$defs/tokens", "default": 128000},
        "compact_at": {"description": "The part of the window from which on the conversation is summarised.", "type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.8},
        "keep_turns": {"description": "So many turns at the end stay as they are.", "$ref": "#/$defs/count", "default": 4}
      }
    },
    "max_attempts": {
      "description": "How often a turn is tried when the provider fails.",
      "$ref": "#/$defs/attempts",
      "default": 8
    },
    "idle_timeout": {
      "description": "Bounds the time without a byte from the provider.",
      "$ref": "#/$defs/duration",
      "default": "60s"
    },
    "total_timeout": {
      "description": "Bounds one model turn.",
      "$ref": "#/$defs/duration",
      "default": "10m"
    },
    "http_allow": {
      "description": "The only hosts that http tools and MCP servers of this agent may be at, as example.org, .example.org for all below it, or example.org:8443. It narrows what the replica allows.",
      "type": "array",
      "items": {"title": "a host, as example.org, .example.org or example.org:8443", "type": "string", "pattern": "^[^/?#@ ]+$"}
    }
  },
  "$defs": {
    "name": {"title": "a text of 1 to 256 characters", "type": "string", "minLength": 1, "maxLength": 256},
    "text": {"title": "a text that is not empty", "type": "string", "minLength": 1},
    "count": {"type": "integer", "minimum": 1, "maximum": 1000000},
    "tokens": {"type": "integer", "minimum": 1, "maximum": 1000000000000},
    "attempts": {"type": "integer", "minimum": 1, "maximum": 100},
    "usd": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000000},
    "duration": {
      "title": "a duration, as \"30s\" or \"1h30m\"",
      "type": "string",
      "pattern": "^[1-9][0-9]{0,5}(ms|s|m|h)([0-9]{1,4}(ms|s|m|h)){0,3}$"
    },
    "url": {
      "title": "a URL, as https://host/path, without user and password",
      "type": "string",
      "writeOnly": true,
      "pattern": "^https?://[^/?#@{} ]+([/?#][^ ]*)?$"
    },
    "secret": {
      "title": "an object {\"env\": \"NAME\"} or {\"file\": \"/path\"}",
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "env": {"$ref": "#/$defs/env"},
        "file": {"$ref": "#/$defs/file"}
      },
      "oneOf": [{"required": ["env"]}, {"required": ["file"]}]
    },
    "env": {
      "description": "A variable of the replica's environment. Its name ends in _API_KEY or _TOKEN, or is listed in the replica's configuration.",
      "title": "the name of an environment variable",
      "type": "string",
      "writeOnly": true,
      "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"
    },
    "file": {
      "description": "A file of the replica's machine, in its directory of secrets.",
      "title": "the absolute path of a file",
      "type": "string",
      "writeOnly": true,
      "pattern": "^/[^ ]+$"
    },
    "headers": {
      "type": "object",
      "propertyNames": {"title": "the name of a header", "type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"},
      "additionalProperties": {
        "title": "a text or an object {\"env\": \"NAME\"} or {\"file\": \"/path\"}",
        "oneOf": [{"type": "string"}, {"$ref": "#/$defs/secretHeader"}]
      }
    },
    "secretHeader": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "env": {"$ref": "#/$defs/env"},
        "file": {"$ref": "#/$defs/file"},
        "prefix": {"description": "What comes before the secret, as \"Bearer \".", "type": "string"}
      },
      "oneOf": [{"required": ["env"]}, {"required": ["file"]}]
    },
    "tool": {
      "type": "object",
      "discriminator": {"propertyName": "type"},
      "required": ["type"],
      "oneOf": [
        {"$ref": "#/$defs/http"},
        {"$ref": "#/$defs/sql"},
        {"$ref": "#/$defs/mcp"},
        {"$ref": "#/$defs/agent"},
        {"$ref": "#/$defs/signal"},
        {"$ref": "#/$defs/sleep"},
        {"$ref": "#/$defs/kind"}
      ]
    },
    "toolName": {
      "title": "1 to 64 letters, digits, _ and -",
      "type": "string",
      "pattern": "^[A-Za-z0-9_-]{1,64}$"
    },
    "toolDescription": {"description": "What the model is told of the tool.", "type": "string"},
    "parameters": {
      "description": "The JSON Schema of the arguments. None if absent.",
      "type": "object",
      "properties": {
        "type": {"type": "string", "const": "object"},
        "properties": {"type": "object"}
      }
    },
    "timeout": {"description": "Bounds one attempt.", "$ref": "#/$defs/duration", "default": "30s"},
    "toolAttempts": {"description": "How often a call that fails is tried.", "$ref": "#/$defs/attempts", "default": 3},
    "approval": {"description": "A person has to approve each call.", "type": "boolean"},
    "atMostOnce": {
      "description": "A call is never made twice. When a replica dies in the middle of one, it fails, or a person is asked what came of it.",
      "type": "string",
      "enum": ["fail", "ask"]
    },
    "maxOutput": {
      "description": "What the model sees of a result, in bytes.",
      "type": "integer",
      "minimum": 256,
      "maximum": 1048576,
      "default": 16384
    },
    "http": {
      "description": "An HTTP request.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name", "url"],
      "properties": {
        "type": {"type": "string", "const": "http"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"},
        "parameters": {"$ref": "#/$defs/parameters"},
        "timeout": {"$ref": "#/$defs/timeout"},
        "max_attempts": {"$ref": "#/$defs/toolAttempts"},
        "approval": {"$ref": "#/$defs/approval"},
        "at_most_once": {"$ref": "#/$defs/atMostOnce"},
        "max_output": {"$ref": "#/$defs/maxOutput"},
        "method": {"type": "string", "enum": ["GET", "POST", "PUT", "PATCH", "DELETE"], "default": "GET"},
        "url": {
          "description": "{param} in the path or query is replaced by that argument, escaped.",
          "$ref": "#/$defs/url"
        },
        "headers": {"$ref": "#/$defs/headers"},
        "query": {
          "description": "Arguments that go to the query. The rest is the JSON body; of GET and DELETE it goes to the query too.",
          "type": "array",
          "items": {"$ref": "#/$defs/name"}
        }
      }
    },
    "sql": {
      "description": "A statement in the database of pgexec, under the role that the replica has for it.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name", "statement"],
      "properties": {
        "type": {"type": "string", "const": "sql"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"},
        "parameters": {"$ref": "#/$defs/parameters"},
        "timeout": {"$ref": "#/$defs/timeout"},
        "max_attempts": {"$ref": "#/$defs/toolAttempts"},
        "approval": {"$ref": "#/$defs/approval"},
        "at_most_once": {"$ref": "#/$defs/atMostOnce"},
        "max_output": {"$ref": "#/$defs/maxOutput"},
        "statement": {"description": "One statement with $1, $2 … for args.", "$ref": "#/$defs/text"},
        "args": {
          "description": "The arguments that $1, $2 … stand for.",
          "type": "array",
          "items": {"$ref": "#/$defs/name"}
        },
        "write": {"description": "The statement writes. It commits with the call's record, exactly once.", "type": "boolean"}
      }
    },
    "mcp": {
      "description": "The tools of an MCP server.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name"],
      "properties": {
        "type": {"type": "string", "const": "mcp"},
        "name": {"description": "The model sees its tools as NAME_TOOL.", "$ref": "#/$defs/toolName"},
        "timeout": {"$ref": "#/$defs/timeout"},
        "max_attempts": {"$ref": "#/$defs/toolAttempts"},
        "approval": {"$ref": "#/$defs/approval"},
        "at_most_once": {"$ref": "#/$defs/atMostOnce"},
        "max_output": {"$ref": "#/$defs/maxOutput"},
        "server": {"description": "A command of the replica's configuration, by its name there.", "$ref": "#/$defs/name"},
        "url": {"description": "A server that speaks streamable HTTP.", "$ref": "#/$defs/url"},
        "headers": {"$ref": "#/$defs/headers"},
        "tools": {
          "description": "The only ones of its tools that the model sees. All if absent.",
          "type": "array",
          "items": {"$ref": "#/$defs/name"}
        }
      },
      "oneOf": [{"required": ["server"]}, {"required": ["url"]}]
    },
    "agent": {
      "description": "A sub-agent: a child run, to which the model gives a prompt. Its answer is the result.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name", "agent"],
      "properties": {
        "type": {"type": "string", "const": "agent"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"},
        "approval": {"$ref": "#/$defs/approval"},
        "max_output": {"$ref": "#/$defs/maxOutput"},
        "agent": {"description": "Its name in pgexec.agents.", "$ref": "#/$defs/name"},
        "limits": {
          "description": "Limits of one call, below those that the sub-agent's own definition has.",
          "type": "object",
          "additionalProperties": false,
          "properties": {
            "max_tokens": {"$ref": "#/$defs/tokens"},
            "max_cost_usd": {"$ref": "#/$defs/usd"},
            "max_wall": {"$ref": "#/$defs/duration"}
          }
        }
      }
    },
    "signal": {
      "description": "A question to a person, who answers with a signal.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name"],
      "properties": {
        "type": {"type": "string", "const": "signal"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"},
        "timeout": {"description": "How long to wait for the answer. For ever if absent.", "$ref": "#/$defs/duration"},
        "max_output": {"$ref": "#/$defs/maxOutput"}
      }
    },
    "sleep": {
      "description": "A wait of so many seconds.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name"],
      "properties": {
        "type": {"type": "string", "const": "sleep"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"}
      }
    },
    "kind": {
      "description": "A kind of the program that embeds pgexec, or one that programs outside do. The arguments are its input.",
      "type": "object",
      "additionalProperties": false,
      "required": ["type", "name", "kind"],
      "properties": {
        "type": {"type": "string", "const": "kind"},
        "name": {"$ref": "#/$defs/toolName"},
        "description": {"$ref": "#/$defs/toolDescription"},
        "parameters": {"$ref": "#/$defs/parameters"},
        "timeout": {"$ref": "#/$defs/timeout"},
        "max_attempts": {"$ref": "#/$defs/toolAttempts"},
        "approval": {"$ref": "#/$defs/approval"},
        "at_most_once": {"$ref": "#/$defs/atMostOnce"},
        "max_output": {"$ref": "#/$defs/maxOutput"},
        "kind": {"$ref": "#/$defs/name"}
      }
    }
  }
}
$json$::jsonb;

-- What the input of a run of kind agent is.
create function pgexec.agent_input_schema() returns jsonb
language sql immutable parallel safe
return $json$
{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$anchor": "input",
  "type": "object",
  "additionalProperties": false,
  "required": ["agent"],
  "properties": {
    "agent": {
      "description": "Its name in pgexec.agents.",
      "title": "a text of 1 to 256 characters",
      "type": "string",
      "minLength": 1,
      "maxLength": 256
    },
    "prompt": {
      "description": "The first user message.",
      "title": "a text that is not empty",
      "type": "string",
      "minLength": 1
    },
    "messages": {
      "description": "The conversation so far, which ends with a user message.",
      "type": "array",
      "minItems": 1,
      "items": {"$ref": "#/$defs/message"}
    },
    "continue": {
      "description": "A run that has ended: its conversation goes before.",
      "title": "the id of a run",
      "type": "string",
      "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
    }
  },
  "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
  "$defs": {
    "message": {
      "type": "object",
      "additionalProperties": false,
      "required": ["role", "content"],
      "properties": {
        "role": {"type": "string", "enum": ["user", "assistant"]},
        "content": {
          "title": "a text or a list of parts",
          "oneOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/part"}}
          ]
        }
      }
    },
    "part": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "text": {"type": "string"},
        "image": {"$ref": "#/$defs/image"}
      },
      "oneOf": [{"required": ["text"]}, {"required": ["image"]}]
    },
    "image": {
      "description": "A picture: a stored blob, an address that the provider fetches, or its bytes in base64.",
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "$blob": {"type": "object"},
        "url": {"title": "a URL, as https://host/path", "type": "string", "pattern": "^https?://[^ ]+$"},
        "media_type": {"title": "as image/png", "type": "string", "pattern": "^image/[a-z0-9.+-]+$"},
        "data": {"title": "bytes in base64", "type": "string", "minLength": 1, "writeOnly": true, "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}
      },
      "oneOf": [{"required": ["$blob"]}, {"required": ["url"]}, {"required": ["media_type", "data"]}]
    }
  }
}
$json$::jsonb;

-- A JSON value in words. A text is shown, or only said to be one, since it may be a secret.
create function pgexec.json_words(v jsonb, shows_text boolean) returns text
language sql immutable parallel safe
set search_path = ''
as $$
  select case coalesce(jsonb_typeof(v), 'null')
    when 'object' then 'an object'
    when 'array' then 'a list'
    when 'string' then case
      when not shows_text then 'a text'
      when length(v #>> '{}') > 80 then to_json(left(v #>> '{}', 80) || '…')::text
      else to_json(v #>> '{}')::text end
    else coalesce(v::text, 'null')
  end
$$;
revoke execute on function pgexec.json_words(jsonb, boolean) from public;

-- What a value of a schema must be, in words.
create function pgexec.schema_words(rule jsonb) returns text
language sql immutable parallel safe
set search_path = ''
as $$
  select case
    when rule ? 'enum' then 'one of ' || (select string_agg(e::text, ', ' order by n) from jsonb_array_elements(rule -> 'enum') with ordinality _ (e, n))
    when rule ? 'const' then (rule -> 'const')::text
    when rule ? 'title' then rule ->> 'title'
    else case rule ->> 'type'
      when 'object' then 'an object'
      when 'array' then 'a list'
      when 'string' then 'a text'
      when 'integer' then 'a whole number'
      when 'number' then 'a number'
      when 'boolean' then 'true or false'
    end
  end
$$;
revoke execute on function pgexec.schema_words(jsonb) from public;

-- What is wrong with a value, in words that begin with its path; null if nothing is. The first problem in the order of
-- the fields' names counts. It knows the part of JSON Schema that the schemas above use. A title says what a value
-- must be, one that is writeOnly is never shown, and an alternative is told by its discriminator, its type, or the fields it requires.
create function pgexec.schema_problem(root jsonb, rule jsonb, v jsonb, path text) returns text
language plpgsql immutable
set search_path = ''
as $$
declare
  type constant text := jsonb_typeof(v);
  what constant text := coalesce(nullif(path, ''), 'the ' || (root ->> '$anchor'));
  dot constant text := case when path = '' then '' else path || '.' end;
  problem text;
  name text;
  member jsonb;
  choices jsonb;
begin
  while rule ? '$ref' loop
    rule := root #> array['$defs', substr(rule ->> '$ref', length('#/$defs/') + 1)];
  end loop;

  if rule ->> 'type' <> type and not (rule ->> 'type' = 'integer' and type = 'number' and v::text !~ '\.') then
    return format('%s is %s, must be %s', what, pgexec.json_words(v, false), pgexec.schema_words(rule));
  end if;

  if type = 'string' then
    if not coalesce(rule -> 'enum' @> v, rule -> 'const' = v, true)
      or length(v #>> '{}') < (rule ->> 'minLength')::integer
      or length(v #>> '{}') > (rule ->> 'maxLength')::integer
      or v #>> '{}' !~ (rule ->> 'pattern') then
      return what || case when rule ? 'writeOnly' then '' else format(' is %s,', pgexec.json_words(v, true)) end
        || ' must be ' || pgexec.schema_words(rule);
    end if;

  elsif type = 'number' then
    problem := case
      when v::numeric < (rule ->> 'minimum')::numeric then 'at least ' || (rule ->> 'minimum')
      when v::numeric <= (rule ->> 'exclusiveMinimum')::numeric then 'above ' || (rule ->> 'exclusiveMinimum')
      when v::numeric > (rule ->> 'maximum')::numeric then 'at most ' || (rule ->> 'maximum') end;
    if problem is not null then
      return format('%s is %s, must be %s', what, v, problem);
    end if;

  elsif type = 'array' then
    if jsonb_array_length(v) < (rule ->> 'minItems')::integer then
      return format('%s has %s items, must have at least %s', what, jsonb_array_length(v), rule ->> 'minItems');
    elsif jsonb_array_length(v) > (rule ->> 'maxItems')::integer then
      return format('%s has %s items, must have at most %s', what, jsonb_array_length(v), rule ->> 'maxItems');
    end if;
    for i in 0 .. jsonb_array_length(v) - 1 loop
      problem := pgexec.schema_problem(root, rule -> 'items', v -> i, format('%s[%s]', path, i));
      if problem is not null then
        return problem;
      end if;
    end loop;

  elsif type = 'object' then
    for name in select jsonb_array_elements_text(rule -> 'required') loop
      if not v ? name then
        return dot || name || ' is missing';
      end if;
    end loop;
    for name, member in select o.key, o.value from jsonb_each(v) o order by o.key collate "C" loop
      problem := case
        when rule -> 'properties' ? name then pgexec.schema_problem(root, rule -> 'properties' -> name, member, dot || name)
        when rule -> 'additionalProperties' = 'false' then format('%s is not known; the fields are %s', dot || name,
          (select string_agg(k, ', ' order by k collate "C") from jsonb_object_keys(rule -> 'properties') k))
        when name !~ (rule #>> '{propertyNames,pattern}') then format('%s has %s, must be %s', what,
          pgexec.json_words(to_jsonb(name), true), rule #>> '{propertyNames,title}')
        when rule ? 'additionalProperties' then pgexec.schema_problem(root, rule -> 'additionalProperties', member, dot || name) end;
      if problem is not null then
        return problem;
      end if;
    end loop;
  end if;

  if not coalesce(rule ? 'oneOf', false) then
    return null;
  end if;
  choices := (
    select jsonb_agg(coalesce(root #> array['$defs', substr(c ->> '$ref', length('#/$defs/') + 1)], c) order by n)
    from jsonb_array_elements(rule -> 'oneOf') with ordinality _ (c, n));
  if rule ? 'discriminator' then
    name := rule #>> '{discriminator,propertyName}';
    member := (select c from jsonb_array_elements(choices) c where c #> array['properties', name, 'const'] = v -> name);
    if member is null then
      return format('%s is %s, must be one of %s', dot || name, pgexec.json_words(v -> name, true),
        (select string_agg((c #> array['properties', name, 'const'])::text, ', ' order by n)
          from (select c, n from jsonb_array_elements(choices) with ordinality e (c, n)) _));
    end if;
    return pgexec.schema_problem(root, member, v, path);
  elsif choices -> 0 ? 'type' then
    member := (select c from jsonb_array_elements(choices) c where c ->> 'type' = type limit 1);
    if member is null then
      return format('%s is %s, must be %s', what, pgexec.json_words(v, false), pgexec.schema_words(rule));
    end if;
    return pgexec.schema_problem(root, member, v, path);
  elsif (
    select count(*) from jsonb_array_elements(choices) c
    where v ?& array(select jsonb_array_elements_text(c -> 'required'))) <> 1 then
    return format('%s must have exactly one of %s', what, (
      select string_agg((select string_agg(f, ' and ' order by m) from jsonb_array_elements_text(c -> 'required') with ordinality __ (f, m)), ', ' order by n)
      from jsonb_array_elements(choices) with ordinality _ (c, n)));
  end if;
  return null;
end
$$;
revoke execute on function pgexec.schema_problem(jsonb, jsonb, jsonb, text) from public;

-- The first header that holds a secret as a text.
create function pgexec.header_problem(headers jsonb, path text) returns text
language sql immutable
set search_path = ''
as $$
  select format('%s.%s is a text, must be an object {"env": "NAME"} or {"file": "/path"}: secrets are not stored', path, h.key)
  from jsonb_each(headers) h
  where jsonb_typeof(h.value) = 'string' and lower(h.key) in ('api-key', 'authorization', 'cookie', 'proxy-authorization', 'x-api-key')
  order by h.key collate "C"
  limit 1
$$;
revoke execute on function pgexec.header_problem(jsonb, text) from public;

-- What is wrong with a definition of an agent, in words that begin with the field; null if nothing is.
create function pgexec.agent_problem(definition jsonb) returns text
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

-- What is wrong with the input of a run of kind agent; null if nothing is.
create function pgexec.agent_input_problem(input jsonb) returns text
language sql immutable security definer
set search_path = ''
as $$
  select coalesce(
    pgexec.schema_problem(pgexec.agent_input_schema(), pgexec.agent_input_schema(), input, ''),
    (select format('messages[%s].role is "assistant", must be "user": the last message is what the model answers', jsonb_array_length(input -> 'messages') - 1)
      where input #>> '{messages,-1,role}' = 'assistant'))
$$;

-- The agents: what a run of kind agent names. A change is for new runs; a run keeps the definition it began with.
create table pgexec.agents (
  name       text primary key check (name <> '' and length(name) <= 256),
  definition jsonb not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

create function pgexec.agents_before_write() returns trigger
language plpgsql security definer
set search_path = ''
as $$
declare
  problem text := pgexec.agent_problem(new.definition);
begin
  if problem is not null then
    raise exception 'agent %: %', new.name, problem using errcode = 'check_violation';
  end if;
  new.created_at := case tg_op when 'INSERT' then now() else old.created_at end;
  new.updated_at := now();
  return new;
end
$$;
create trigger agents_before_write before insert or update on pgexec.agents
  for each row execute function pgexec.agents_before_write();

-- What models cost, in US dollars per million tokens. A model whose name ends in * stands for all that begin so;
-- the longest fitting name counts. There is nothing here at first: prices change, and only the one who pays knows them.
create table pgexec.model_prices (
  provider    text not null check (provider in ('openai', 'anthropic')),
  model       text not null check (model <> ''),
  input       numeric not null check (input >= 0 and input < 'infinity'),
  -- Input read from the provider's cache, and written to it; null costs as much as other input.
  cached      numeric check (cached >= 0 and cached < 'infinity'),
  cache_write numeric check (cache_write >= 0 and cache_write < 'infinity'),
  output      numeric not null check (output >= 0 and output < 'infinity'),
  primary key (provider, model)
);

-- The price of a model; null if there is none.
create function pgexec.model_price(provider text, model text) returns pgexec.model_prices
language sql stable
set search_path = ''
as $$
  select p from pgexec.model_prices p
  where p.provider = model_price.provider
    and (p.model = model_price.model or right(p.model, 1) = '*' and starts_with(model_price.model, left(p.model, -1)))
  order by p.model = model_price.model desc, length(p.model) desc
  limit 1
$$;

-- What a model turn costs in US dollars; null if the model has no price. Input includes what was read from the cache and written to it.
create function pgexec.model_cost(provider text, model text, input bigint, cached_read bigint, cache_write bigint, output bigint) returns numeric
language sql stable
set search_path = ''
as $$
  select trim_scale((
    (model_cost.input - cached_read - model_cost.cache_write) * p.input
    + cached_read * coalesce(p.cached, p.input)
    + model_cost.cache_write * coalesce(p.cache_write, p.input)
    + model_cost.output * p.output) / 1000000)
  from pgexec.model_price(model_cost.provider, model_cost.model) p
  where p.provider is not null
$$;

-- A duration of a definition, as "1h30m", in milliseconds.
create function pgexec.duration_ms(duration text) returns bigint
language sql immutable parallel safe
set search_path = ''
as $$
  select sum(m[1]::bigint * case m[2] when 'h' then 3600000 when 'm' then 60000 when 's' then 1000 else 1 end)::bigint
  from regexp_matches(duration, '([0-9]+)(ms|s|m|h)', 'g') m
$$;
revoke execute on function pgexec.duration_ms(text) from public;

-- Limits of agents' runs, beside those that all runs have.
alter table pgexec.runs
  add column max_turns      integer check (max_turns > 0),
  add column max_tool_calls integer check (max_tool_calls > 0);

-- A run of kind agent names one that there is, and has the limits of its definition where it says nothing else; a
-- sub-agent has the least of its own and its parent's. It comes before the trigger of all runs, which
-- clears forked_from: a fork has its limits already, and its agent may have gone.
-- An input that is itself a blob is left to the replica.
create function pgexec.runs_agent_before_insert() returns trigger
language plpgsql security definer
set search_path = ''
as $$
declare
  problem text := pgexec.agent_input_problem(new.input);
  agent pgexec.agents;
  limits jsonb;
  former pgexec.runs;
begin
  if problem is not null then
    raise exception 'input of a run of kind agent: %', problem using errcode = 'check_violation';
  end if;
  select * into agent from pgexec.agents a where a.name = new.input ->> 'agent';
  if not found then
    raise exception 'agent % does not exist: insert it into pgexec.agents', new.input -> 'agent' using errcode = 'foreign_key_violation';
  end if;
  if new.input ? 'continue' then
    select * into former from pgexec.runs r where r.run_id = (new.input ->> 'continue')::uuid;
    if former.kind is distinct from 'agent' or former.finished_at is null
      or former.created_by <> (case when new.parent_run_id is null then session_user else new.created_by end) then
      raise exception 'continue: % is not an agent''s run of yours that has ended', new.input ->> 'continue' using errcode = 'foreign_key_violation';
    end if;
  end if;
  limits := coalesce(agent.definition -> 'limits', '{}');
  new.max_turns := coalesce(new.max_turns, (limits ->> 'max_turns')::integer, 50);
  new.max_tool_calls := coalesce(new.max_tool_calls, (limits ->> 'max_tool_calls')::integer, 200);
  if new.parent_run_id is null then
    new.max_tokens := coalesce(new.max_tokens, (limits ->> 'max_tokens')::bigint);
    new.max_cost_usd := coalesce(new.max_cost_usd, (limits ->> 'max_cost_usd')::numeric);
    new.max_wall_ms := coalesce(new.max_wall_ms, pgexec.duration_ms(limits ->> 'max_wall'));
  else
    new.max_tokens := least(new.max_tokens, (limits ->> 'max_tokens')::bigint);
    new.max_cost_usd := least(new.max_cost_usd, (limits ->> 'max_cost_usd')::numeric);
    new.max_wall_ms := least(new.max_wall_ms, pgexec.duration_ms(limits ->> 'max_wall'));
  end if;
  if new.max_cost_usd is not null and pgexec.model_price(agent.definition ->> 'provider', agent.definition ->> 'model') is null then
    raise exception 'max_cost_usd is % for agent %, but its model % has no price: insert it into pgexec.model_prices',
      new.max_cost_usd, agent.name, agent.definition ->> 'model' using errcode = 'check_violation';
  end if;
  return new;
end
$$;
create trigger runs_agent_before_insert before insert on pgexec.runs
  for each row when (new.kind = 'agent' and new.forked_from is null and not new.input ? '$blob')
  execute function pgexec.runs_agent_before_insert();

-- How much was spent at a price that is not known, child runs included, as of the run's last end, pause or wait without a replica.
alter table pgexec.runs add column unpriced bigint not null default 0;

-- The record format's usage has got the field unpriced.
do $$
declare
  definition text := pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure);
  added text := replace(definition, '{cost_nano_usd,i,-}}', '{cost_nano_usd,i,-},{unpriced,i,-}}');
begin
  if length(added) <> length(definition) + length(',{unpriced,i,-}') then
    raise exception 'pgexec.decode_message is not what the migrations before made it';
  end if;
  execute added;
end
$$;

-- A fork has its source's limits, those of agents too.
do $$
declare
  definition text := pg_get_functiondef('pgexec.fork(uuid, bigint, text, jsonb)'::regprocedure);
  added text := replace(replace(definition,
    ', labels, traceparent)', ', labels, traceparent, max_turns, max_tool_calls, forked_from)'),
    'source.traceparent);', 'source.traceparent, source.max_turns, source.max_tool_calls, source.run_id);');
begin
  if length(added) <> length(definition) + length(', max_turns, max_tool_calls, forked_from, source.max_turns, source.max_tool_calls, source.run_id') then
    raise exception 'pgexec.fork is not what the migrations before made it';
  end if;
  execute added;
end
$$;

-- Resume raises the limits of agents too.
do $$
declare
  definition text := pg_get_functiondef('pgexec.resume(uuid, bigint, numeric, integer, bigint, timestamptz)'::regprocedure);
  added text := replace(replace(replace(replace(definition,
    'DEFAULT NULL::timestamp with time zone)', 'DEFAULT NULL::timestamp with time zone, add_turns integer DEFAULT NULL::integer, add_tool_calls integer DEFAULT NULL::integer)'),
    'add_nodes, add_wall_ms) < 0', 'add_nodes, add_wall_ms, add_turns, add_tool_calls) < 0'),
    'or coalesce(resume.deadline > r.deadline, false) as gets_more', 'or coalesce(add_turns > 0 and r.max_turns is not null, false)
          or coalesce(add_tool_calls > 0 and r.max_tool_calls is not null, false)
          or coalesce(resume.deadline > r.deadline, false) as gets_more'),
    'max_wall_ms = r.max_wall_ms + coalesce(add_wall_ms, 0),', 'max_wall_ms = r.max_wall_ms + coalesce(add_wall_ms, 0),
        max_turns = r.max_turns + coalesce(add_turns, 0),
        max_tool_calls = r.max_tool_calls + coalesce(add_tool_calls, 0),');
begin
  -- Each name is there so often if and only if everything was replaced.
  if (select count(*) from regexp_matches(added, 'add_turns', 'g')) <> 4 then
    raise exception 'pgexec.resume is not what the migrations before made it';
  end if;
  drop function pgexec.resume(uuid, bigint, numeric, integer, bigint, timestamptz);
  execute added;
end
$$;

-- What follows reads logs with the rights of who asks.

-- A payload of a decoded record as the JSON it is, also where it is a blob of this database; one that is elsewhere as what stands for it.
create function pgexec.payload_json(payload jsonb) returns jsonb
language plpgsql stable
set search_path = ''
as $$
begin
  if payload #>> '{$blob,url}' like 'db:%' and payload #>> '{$blob,media_type}' = 'application/json' then
    return coalesce(pgexec.json_lossy(pgexec.blob_bytes(payload #>> '{$blob,url}')), payload);
  end if;
  return payload;
end
$$;

-- The log of one run decoded: the last record of each node that has not been retried since, with payloads that are blobs read.
create function pgexec.last_records(run_id uuid) returns table (seq bigint, node_id text, node jsonb)
language sql stable
set search_path = ''
as $$
  with records as materialized (
    select l.seq, d.rec
    from pgexec.run_log l
    cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
    where l.run_id = last_records.run_id and substring(l.record from 1 for 1) in ('\x0a', '\x32')
  ), retried as materialized (
    -- Found once, not anew for each node: long runs have thousands.
    select n.id, max(r.seq) as seq
    from records r cross join lateral jsonb_array_elements_text(r.rec #> '{control,node_ids}') n (id)
    where r.rec #>> '{control,kind}' = 'retried'
    group by n.id
  )
  select l.seq, l.id, l.node
  from (
    select distinct on (r.rec #>> '{node,id}') r.seq, r.rec #>> '{node,id}' as id, r.rec -> 'node' as node
    from records r
    where r.rec ? 'node'
    order by r.rec #>> '{node,id}', r.seq desc
  ) l
  where l.seq > coalesce((select r.seq from retried r where r.id = l.id), 0)
$$;

-- The approvals that a run waits for.
create function pgexec.open_approvals(run_id uuid) returns table (node_id text, about jsonb, args jsonb, since timestamptz)
language sql stable
set search_path = ''
as $$
  with done as materialized (
    select r.* from pgexec.last_records(open_approvals.run_id) r
    -- Most runs have no approval, and their logs are not decoded.
    where exists (
      select from pgexec.run_log l
      -- The kind of a spawned node, as the record format writes it: field 2, of 8 bytes.
      where l.run_id = open_approvals.run_id and position('\x1208'::bytea || convert_to('approval', 'UTF8') in l.record) > 0)
  )
  select s.spec ->> 'id', i.input -> 'about', coalesce(i.input -> 'args', 'null'), p.since
  from done d
  cross join lateral jsonb_array_elements(d.node -> 'spawned') s (spec)
  cross join lateral (select pgexec.payload_json(s.spec -> 'input') as input offset 0) i
  cross join lateral (
    select max((q.node ->> 'finished_at')::timestamptz) as since,
      bool_and(coalesce(q.node ->> 'status' = 'succeeded' or s.spec ->> 'join' = 'all_done' and q.node is not null, false)) as ready
    from jsonb_array_elements_text(s.spec -> 'parents') e (id)
    left join done q on q.node_id = e.id
  ) p
  where s.spec ->> 'kind' = 'approval' and p.ready
    and not exists (select from done a where a.node_id = s.spec ->> 'id')
$$;

-- What people are asked to approve, in runs that have not ended: who asks, the tool, and the arguments it would get.
create view pgexec.approvals as
select r.run_id, a.node_id, a.about ->> 'tool' as tool, a.args, a.about, a.since, r.kind, r.input ->> 'agent' as agent, r.created_by
from pgexec.runs r
cross join lateral pgexec.open_approvals(r.run_id) a
where r.finished_at is null;

-- Decides about an approval that is open, once: the same decision again changes nothing, another one is an error.
create function pgexec.decide(run_id uuid, node_id text, decision jsonb) returns void
language plpgsql volatile security definer
set search_path = ''
as $$
#variable_conflict use_column
declare
  key text;
  asked jsonb;
  sent jsonb;
begin
  select a.args into asked from pgexec.open_approvals(decide.run_id) a where a.node_id = decide.node_id;
  if not found then
    raise exception 'run % has no open approval %', decide.run_id, decide.node_id
      using errcode = 'invalid_parameter_value',
        hint = coalesce('Open are ' || (select string_agg(a.node_id, ', ' order by a.node_id) from pgexec.open_approvals(decide.run_id) a) || '.', 'None is open.');
  end if;
  if jsonb_typeof(asked) = 'object' and jsonb_typeof(decision -> 'args') <> 'object' then
    raise exception 'args is %, must be an object, as %', decision -> 'args', asked using errcode = 'invalid_parameter_value';
  end if;
  -- Each time that it is asked again, after a retry, there is another key.
  key := 'approval ' || decide.node_id || ' ' || (
    select count(*) from pgexec.nodes n where n.run_id = decide.run_id and n.node_id = decide.node_id);
  insert into pgexec.signals (run_id, name, payload, node_id, dedupe_key)
  values (decide.run_id, 'approval', decision, decide.node_id, key)
  on conflict on constraint signals_run_id_dedupe_key_key do nothing;
  if not found then
    select s.payload into sent from pgexec.signals s where s.run_id = decide.run_id and s.dedupe_key = key;
    if sent <> decision then
      raise exception 'approval % of run % has been decided already: %', decide.node_id, decide.run_id, sent
        using errcode = 'object_not_in_prerequisite_state';
    end if;
  end if;
end
$$;
revoke execute on function pgexec.decide(uuid, text, jsonb) from public;

-- Approves what a node of kind approval asks for; with args, with these in the place of those it asks for.
create function pgexec.approve(run_id uuid, node_id text, args jsonb default null) returns text
language sql volatile security definer
set search_path = ''
as $$
  select pgexec.decide(approve.run_id, approve.node_id, '{"approve": true}'
    || case when approve.args is null then '{}' else jsonb_build_object('args', approve.args) end);
  select 'approved'
$$;

-- Rejects it: what needs it is skipped, and a model is told the reason.
create function pgexec.reject(run_id uuid, node_id text, reason text default null) returns text
language sql volatile security definer
set search_path = ''
as $$
  select pgexec.decide(reject.run_id, reject.node_id, jsonb_strip_nulls(jsonb_build_object('approve', false, 'reason', reject.reason)));
  select 'rejected'
$$;

-- What a message says: its texts, and where its images are.
create function pgexec.content_text(content jsonb) returns text
language sql immutable parallel safe
set search_path = ''
as $$
  select case jsonb_typeof(content)
    when 'string' then content #>> '{}'
    when 'array' then (
      select nullif(string_agg(case when p ? 'image' or p ->> 'type' in ('image', 'image_url') or p ? '$blob' then '[an image]' else p ->> 'text' end, E'\n' order by n), '')
      from jsonb_array_elements(content) with ordinality _ (p, n))
    when 'object' then coalesce(pgexec.content_text(content -> 'text'), pgexec.content_text(content -> 'content'), content::text)
    when 'null' then null
    else content::text
  end
$$;

-- What a tool gave, as far as it is text.
create function pgexec.result_text(output jsonb) returns text
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

-- The calls of an assistant's message in either provider's format: [{"id", "name", "args"}]. Arguments that are no JSON are a text.
create function pgexec.message_calls(message jsonb) returns jsonb
language sql immutable parallel safe
set search_path = ''
as $$
  select jsonb_agg(c.call order by c.n)
  from (
    select n, jsonb_build_object('id', t -> 'id', 'name', t #> '{function,name}',
      'args', pgexec.json_lossy(convert_to(coalesce(nullif(t #>> '{function,arguments}', ''), '{}'), 'UTF8'))) as call
    from jsonb_array_elements(case jsonb_typeof(message -> 'tool_calls') when 'array' then message -> 'tool_calls' end) with ordinality _ (t, n)
    union all
    select n, jsonb_build_object('id', b -> 'id', 'name', b -> 'name', 'args', b -> 'input')
    from jsonb_array_elements(case jsonb_typeof(message -> 'content') when 'array' then message -> 'content' end) with ordinality _ (b, n)
    where b ->> 'type' = 'tool_use'
  ) c
$$;

-- The conversation of an agent's run, in its order, read from the log: what users said, what the model answered and
-- called, and what came of each call, as its record has it. Also what the runtime told the model (role note), and summaries that later turns
-- have in the place of what came before (role summary). The seq is that of the record; a run that goes on with a former one
-- begins with that one's messages. A node that failed for good shows its error.
create function pgexec.conversation(run_id uuid)
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

-- A node whose cost is not known, or not all of it, has none.
create or replace view pgexec.nodes as
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
  case when coalesce((d.rec #>> '{node,usage,unpriced}')::bigint, 0) = 0
    then coalesce((d.rec #>> '{node,usage,cost_nano_usd}')::numeric, 0) / 1000000000 end as cost_usd,
  (d.rec #>> '{node,started_at}')::timestamptz as started_at,
  (d.rec #>> '{node,finished_at}')::timestamptz as finished_at,
  (d.rec #>> '{node,finished_at}')::timestamptz - (d.rec #>> '{node,started_at}')::timestamptz as duration,
  (d.rec #>> '{node,replica_id}')::bigint as replica_id
from pgexec.run_log l
-- Decoded once a row: "offset 0" keeps the planner from repeating the call in each column.
cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
-- The first byte of a node's record, so that the others are not decoded at all.
where substring(l.record from 1 for 1) = '\x0a';

drop view pgexec.run_overview;
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
  -- Spent, child runs included, as of the last end, pause or parking.
  r.input_tokens + r.output_tokens as tokens,
  r.input_tokens,
  r.output_tokens,
  -- Null when it is not known, or not all of it: so many uses of a model have no price in pgexec.model_prices.
  case when r.unpriced = 0 then r.cost_usd end as cost_usd,
  r.unpriced,
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
