-- Whoever has set pgexec.notify_on_insert to off notifies nobody, with a task that is given back neither.

-- Renews a lease and returns its new end; null tells the worker to stop: the task is gone, or another worker took it, or
-- its lease has expired and others are in flight now, as many as the limit of the kind. A lease of 0 gives the task back, to be taken by anybody at once, as if it had not been taken.
create or replace function pgexec.extend(task_id bigint, worker text, lease interval default '1 minute') returns timestamptz
language plpgsql volatile security definer
set search_path = ''
set enable_seqscan = off
as $$
declare
  back constant boolean := extend.lease = '0';
  lapsed boolean;
  renewed pgexec.tasks;
begin
  perform pgexec.check_lease(extend.lease, '0');
  lapsed := not back and pgexec.may_renew_lapsed(extend.task_id);
  update pgexec.tasks t
  set lease_until = case when not back then clock_timestamp() + extend.lease end,
    state = case when back then 'waiting' else 'taken' end,
    worker = case when not back then t.worker end,
    deliveries = t.deliveries - back::integer
  where (back or lapsed or t.lease_until > clock_timestamp())
    and t.task_id = extend.task_id and t.worker = extend.worker and t.state = 'taken'
    and exists (select from pgexec.runs r where r.run_id = t.run_id and r.finished_at is null and r.wanted is distinct from 'cancel')
  returning t.* into renewed;
  if renewed.state = 'waiting' then
    if coalesce(current_setting('pgexec.notify_on_insert', true), 'on') <> 'off' then
      perform pg_notify('pgexec_task', renewed.kind);
    end if;
  elsif renewed.task_id is null and extend.task_id not between 1 and (select s.last_value from pgexec.tasks_task_id_seq s) then
    raise exception 'task % does not exist', extend.task_id using errcode = 'invalid_parameter_value';
  end if;
  return renewed.lease_until;
end
$$;
