do $$
begin
  execute replace(replace(pg_get_functiondef('pgexec.decode_message(bytea, integer, integer, text, integer)'::regprocedure),
    ',{pause_reason,s,-}', ''), ',{timeout_us,i,-},{own_limits,b,-}', '');
end
$$;

-- Those of many runs of which may_append is true.
create function pgexec.may_append(run_ids uuid[], heads bigint[], replicas integer[], epochs bigint[]) returns setof uuid
language plpgsql stable
set search_path = ''
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query
  select w.run_id from unnest(run_ids, heads, replicas, epochs) w (run_id, head, replica, epoch)
  where (select r.owner = w.replica and r.epoch = w.epoch from pgexec.runs r where r.run_id = w.run_id)
    and (select true from pgexec.run_log l where l.run_id = w.run_id and l.seq = w.head);
end
$$;
