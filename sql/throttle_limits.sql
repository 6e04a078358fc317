-- The limits in force: those that people declare, and for other kinds those of the program that started last. Plain reads.
select l.kind, coalesce(l.max_in_flight, -1) as max_in_flight, coalesce(l.rate, 0) as rate,
  (extract(epoch from l.per) * 1000000)::bigint as per_us, l.burst, l.key_pointer
from pgexec.limits_in_force l
