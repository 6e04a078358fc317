-- The rule of an append is now part of the statement for many runs, whose connection plans it by key.
drop function pgexec.may_append(uuid[], bigint[], integer[], bigint[]);

-- Fields that the record format has got: a node's pause_reason, a spec's timeout_us and own_limits.
do $$
declare
  definition text := pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure);
  added text := replace(replace(definition,
    '{child_run_id,s,-}}', '{child_run_id,s,-},{pause_reason,s,-}}'),
    '{at_most_once,e,"fail,ask,run_again"}}', '{at_most_once,e,"fail,ask,run_again"},{timeout_us,i,-},{own_limits,b,-}}');
begin
  if length(added) <> length(definition) + length(',{pause_reason,s,-},{timeout_us,i,-},{own_limits,b,-}') then
    raise exception 'pgexec.decode_message is not what migration 002 made it';
  end if;
  execute added;
end
$$;
