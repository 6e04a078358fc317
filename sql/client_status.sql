-- Where a run stands, for whoever waits for its end: a plain read by primary key.
select status from pgexec.runs where run_id = $1::uuid
