-- Appends one record of one run, or nothing (G1–G3): in the statement's snapshot the row at the head is there and the owner holds the run; a claim or an append that commits meanwhile has the same primary key. The parameters are used directly, so that nothing is computed and routed twice. The owner is compared outside of the WHERE, so that only the primary key can find the row.
insert into pgexec.run_log (run_id, seq, record)
select $1::uuid, $2::bigint + 1, $3::bytea
where (select r.owner = $4::integer and r.epoch = $5::bigint from pgexec.runs r where r.run_id = $1::uuid)
  and exists (select from pgexec.run_log l where l.run_id = $1::uuid and l.seq = $2::bigint)
on conflict do nothing
