-- What a sql node must know of types to read and write their text form: domains as what they
-- are made of, and the element type of arrays (0 for all else).
with recursive base as (
  select t.oid as asked, t.oid, t.typtype, t.typbasetype, t.typinput, t.typelem, t.typdelim
  from pg_catalog.pg_type t
  where t.oid = any ($1::oid[])
  union all
  select b.asked, t.oid, t.typtype, t.typbasetype, t.typinput, t.typelem, t.typdelim
  from base b
  join pg_catalog.pg_type t on t.oid = b.typbasetype
  where b.typtype = 'd'
)
select asked, oid,
       case when typinput = 'pg_catalog.array_in'::pg_catalog.regproc then typelem else 0 end as elem,
       typdelim::text as delim
from base
where typtype <> 'd'
