-- Tries the session lock that proves that replica $1 lives; never waits for it. A taken id is drawn again.
select pg_try_advisory_lock(1885824376, $1::integer)
