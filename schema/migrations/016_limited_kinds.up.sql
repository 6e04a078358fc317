-- Kinds that wait are not limited: a row that would do nothing is refused.

create function pgexec.kind_limits_check_kind() returns trigger
language plpgsql
set search_path = ''
as $$
begin
  raise exception 'nodes of kind % wait and are never in flight: a limit of theirs would hold nothing', new.kind
    using errcode = 'invalid_parameter_value', hint = 'Limit the kinds of the nodes that do the work, in child runs too.';
end
$$;
create trigger kind_limits_check_kind before insert or update of kind on pgexec.kind_limits
  for each row when (new.kind in ('sleep', 'signal', 'run', 'approval')) execute function pgexec.kind_limits_check_kind();
