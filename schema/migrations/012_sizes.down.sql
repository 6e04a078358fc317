do $$
declare
  definition text := pg_get_functiondef('pgexec.with_output(bytea, jsonb, uuid)'::regprocedure);
begin
  execute replace(definition, '  perform pgexec.check_size(''replace_output'', length(json));
', '');
  definition := pg_get_functiondef('pgexec.complete(bigint, text, json)'::regprocedure);
  execute replace(definition, 'declare
  task pgexec.tasks;
begin
  perform pgexec.check_size(''the output of task '' || complete.task_id, octet_length(complete.output::text));
  task := pgexec.lock_task(complete.task_id, complete.worker);
', 'declare
  task pgexec.tasks := pgexec.lock_task(complete.task_id, complete.worker);
begin
');
end
$$;
drop trigger runs_check_size on pgexec.runs;
drop trigger signals_check_size on pgexec.signals;
drop function pgexec.runs_check_size();
drop function pgexec.signals_check_size();
drop function pgexec.small_text(jsonb);
drop function pgexec.small_text(json);
drop function pgexec.text_bytes(jsonb);
drop function pgexec.check_size(text, bigint);
