-- The right to bury replica $1, until the transaction ends: its advisory lock, which is free only when its session is gone, and its row, which a claim of its own still in flight keeps locked. Tried, not waited for; a statement of its own, so that the next one's snapshot sees every claim of that replica.
select r.host, r.pid, (extract(epoch from clock_timestamp() - r.heartbeat_at) * 1000000)::bigint as silent_us,
  set_config('idle_in_transaction_session_timeout', '5s', true) as bounded
from pgexec.replicas r
where r.replica_id = $1::integer and pg_try_advisory_xact_lock(1885824376, r.replica_id)
for update skip locked
