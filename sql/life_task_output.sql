-- The output of task $1, which has ended, whatever its size, byte for byte: a plain read by primary key.
select t.output::text from pgexec.tasks t where t.task_id = $1 and t.output is not null
