-- What the agent said and was told.
select seq, role, left(coalesce(text, calls::text), 58) as what
from pgexec.conversation(:'run_id') order by seq;
