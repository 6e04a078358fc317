-- Takes one task of kind "shout", does it and says what came of it, or waits for a second if there is none.
\set ON_ERROR_STOP on
select task_id, input ->> 'text' as text
from (select) one left join pgexec.take('shout', :'worker', '1 minute') on true \gset
\if :{?task_id}
  \if :{?text}
    select pgexec.complete(:task_id, :'worker', to_json(upper(:'text')));
  \else
    select pgexec.fail(:task_id, :'worker', 'the input has no "text"', permanent => true);
  \endif
\else
  \! sleep 1
\endif
