-- A run for a closer look: the shortest of those that changed their replica most often.
select run_id, labels ->> 'name' from pgexec.run_overview order by takeovers desc, head, run_id limit 1
