drop function pgexec.fail(bigint, text, text, boolean, interval, jsonb);
drop function pgexec.complete(bigint, text, json, jsonb);
-- Ends a task with its output. True when it counts, also when that was said before by the same worker; false when the task
-- is gone: its run has ended or is to, or what came of the task is recorded. An error when another worker took it. A
-- lease that has expired does not matter as long as nobody else took the task.
create function pgexec.complete(task_id bigint, worker text, output json default 'null') returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
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
  set state = 'succeeded', ended_at = clock_timestamp(), output = coalesce(complete.output, 'null')
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;

-- Ends an attempt with an error. The node is tried again by the policy of its kind, or no earlier than after retry_after;
-- a permanent error fails it at once. The answer is that of pgexec.complete.
create function pgexec.fail(task_id bigint, worker text, error text, permanent boolean default false, retry_after interval default null)
returns boolean
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  task pgexec.tasks := pgexec.lock_task(fail.task_id, fail.worker);
begin
  if task.task_id is null or task.state = 'failed' then
    return task.task_id is not null;
  elsif task.state = 'succeeded' then
    raise exception 'task % has succeeded already', task.task_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  update pgexec.tasks t
  set state = 'failed', ended_at = clock_timestamp(), error = coalesce(fail.error, ''), error_code = 'error',
    permanent = coalesce(fail.permanent, false), retry_after = fail.retry_after
  where t.task_id = task.task_id;
  perform pgexec.tell_of_tasks(array[task.run_id]);
  return true;
end
$$;

alter table pgexec.tasks drop column usage;
drop function pgexec.task_usage(jsonb);
drop function pgexec.usage_problem(jsonb);
drop function pgexec.usage_schema();
