-- Puts a failed run back into the queue for its failed nodes; the function locks the rows of its tree from the root down.
select pgexec.retry($1)
