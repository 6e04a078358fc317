-- Whether there is a run of that id. A read without a lock.
select exists (select from pgexec.runs where run_id = $1::uuid)
