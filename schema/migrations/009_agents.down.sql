drop trigger runs_agent_before_insert on pgexec.runs;
drop function pgexec.runs_agent_before_insert();
alter table pgexec.runs
  drop column max_turns,
  drop column max_tool_calls;
drop function pgexec.duration_ms(text);
drop function pgexec.model_cost(text, text, bigint, bigint, bigint, bigint);
drop function pgexec.model_price(text, text);
drop table pgexec.model_prices;
drop table pgexec.agents;
drop function pgexec.agents_before_write();
drop function pgexec.agent_input_problem(jsonb);
drop function pgexec.agent_problem(jsonb);
drop function pgexec.header_problem(jsonb, text);
drop function pgexec.schema_problem(jsonb, jsonb, jsonb, text);
drop function pgexec.schema_words(jsonb);
drop function pgexec.json_words(jsonb, boolean);
drop function pgexec.agent_input_schema();
drop function pgexec.agent_schema();
