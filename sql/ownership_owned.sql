-- The runs that replica $1 owns, with the version of what has reached each from outside. Plain reads.
select run_id, epoch, inbox from pgexec.runs where owner = $1::integer
