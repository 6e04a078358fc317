-- The runs that replica $1 owns. Plain reads.
select run_id, epoch from pgexec.runs where owner = $1::integer
