-- How many of the replicas $1 lost their session only: a process that is listed now was at work when it ended. A plain read.
select count(*) from unnest($1::integer[]) as d (id)
where exists (select from pgexec.replicas r where d.id = any (r.former_ids))
