-- Removes what was shown of runs whose own rows have it now, or newer figures; what a later owner shows stays.
delete from pgexec.run_usage u
using unnest($1::text[]::uuid[], $2::bigint[]) as s (run_id, epoch)
where u.run_id = s.run_id and u.epoch <= s.epoch
