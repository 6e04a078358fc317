-- Gives back the session lock of an id that was drawn but is listed already.
select pg_advisory_unlock(1885824376, $1::integer)
