-- A writer's run for a closer look: the shortest of those that a signal moved most often.
select run_id, labels ->> 'name' from pgexec.run_overview o where labels ? 'name'
order by (select count(*) from public.demo_takeovers t where t.run = o.labels ->> 'name') desc, head, run_id limit 1
