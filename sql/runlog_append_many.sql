-- Appends records of many runs, of each run all or none (G1–G3), and returns the runs that were written. The first record of a run is under the rule of the one-row form; the rest go in only behind a first one of this statement, and a conflict among them is an error, since it cannot be. In the order of the ids, so that two replicas cannot deadlock on primary keys.
with first as (
  insert into pgexec.run_log (run_id, seq, record)
  select f.run_id, f.head + 1, f.record
  from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::bytea[]) f (run_id, head, owner, epoch, record)
  where (select r.owner = f.owner and r.epoch = f.epoch from pgexec.runs r where r.run_id = f.run_id)
    and (select true from pgexec.run_log l where l.run_id = f.run_id and l.seq = f.head)
  order by f.run_id
  on conflict do nothing
  returning run_id
), rest as (
  insert into pgexec.run_log (run_id, seq, record)
  select m.run_id, m.seq, m.record
  from unnest($6::uuid[], $7::bigint[], $8::bytea[]) m (run_id, seq, record)
  where m.run_id in (select first.run_id from first)
  order by m.run_id, m.seq
)
select first.run_id from first
