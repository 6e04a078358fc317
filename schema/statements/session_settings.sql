-- Makes this transaction independent of the role's settings: no time limit ends it half-way,
-- and a name without its schema is an error. Only parameters this server knows are set.
select pg_catalog.set_config(s.name, case s.name when 'search_path' then '' else '0' end, true)
from pg_catalog.pg_settings s
where s.name in ('search_path', 'statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
