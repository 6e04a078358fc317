-- Which runs have not ended, and why.
select labels ->> 'name', status, coalesce(waits_for, '') from pgexec.run_overview where finished_at is null order by 1
