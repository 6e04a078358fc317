-- Where a run stands and what it waits for, in words: a plain read by primary key.
select status, coalesce(waits_for, '')
from pgexec.run_overview
where run_id = $1
