-- Cancels run $1 and those below it, if there is such a run; the function locks their rows from the root down. Answers the queue of its wakes.
select r.queue, pgexec.cancel(r.run_id, $2) from pgexec.runs r where r.run_id = $1
