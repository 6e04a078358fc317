-- A replica that lost its session and not its life says so when it is back: that was no death of a process.

-- The ids that the process had before this one, of sessions that ended while it was at work.
alter table pgexec.replicas add column former_ids integer[] not null default '{}';

-- What addresses a signal is read at each look at the inbox, with that of all the others.
create function pgexec.signals_check_address() returns trigger
language plpgsql security definer
set search_path = ''
as $$
begin
  raise exception 'the % of a signal has % bytes, the limit is 1024',
    case when octet_length(new.name) > 1024 then 'name' else 'node_id' end, greatest(octet_length(new.name), octet_length(new.node_id))
    using errcode = 'program_limit_exceeded';
end
$$;
create trigger signals_check_address before insert or update of name, node_id on pgexec.signals
  for each row when (octet_length(new.name) > 1024 or octet_length(new.node_id) > 1024) execute function pgexec.signals_check_address();
