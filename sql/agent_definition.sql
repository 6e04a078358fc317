-- The definition of an agent as it is now: a plain read. A run pins what it got in its log. A sub-agent waits for no user: its answer is the result of a call.
select case when p.kind = 'agent' then a.definition - 'interactive' else a.definition end
from pgexec.runs r
join pgexec.agents a on a.name = $2
left join pgexec.runs p on p.run_id = r.parent_run_id
where r.run_id = $1
