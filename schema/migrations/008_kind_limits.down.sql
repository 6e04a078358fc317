create or replace function pgexec.lock_allowed_tasks(task_kind text, most integer) returns bigint[]
language sql volatile
set search_path = ''
as $$
  select pgexec.lock_due_tasks(task_kind, most)
$$;
create or replace function pgexec.may_renew_lapsed(id bigint) returns boolean
language sql volatile
set search_path = ''
as $$
  select true
$$;
drop function pgexec.lock_due_tasks_but(text, integer, jsonb, bigint[]);
drop function pgexec.tasks_in_flight(text, timestamptz);
drop function pgexec.lock_kind(text);
drop index pgexec.tasks_of_key;
drop view pgexec.limit_overview;
drop function pgexec.wake_held(text, text, integer);
drop table pgexec.kind_queue;
drop table pgexec.kind_rates;
drop table pgexec.kind_demand;
drop table pgexec.kind_slots;
drop view pgexec.limits_in_force;
drop table pgexec.declared_limits;
drop table pgexec.kind_limits;
