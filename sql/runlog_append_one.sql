-- Appends one record of one run, or nothing (G1–G3): in the statement's snapshot the row at the head is there and the owner holds the run; a claim or an append that commits meanwhile has the same primary key. The parameters are used directly, so that nothing is computed and routed twice.
insert into pgexec.run_log (run_id, seq, record)
select $1::uuid, $2::bigint + 1, $3::bytea
where pgexec.may_append($1::uuid, $2::bigint, $4::integer, $5::bigint)
on conflict do nothing
