-- A writer's run for a closer look: the shortest of those that changed their replica most often.
select run_id, labels ->> 'name' from pgexec.run_overview where labels ? 'name' order by takeovers desc, head, run_id limit 1
