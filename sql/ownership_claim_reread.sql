-- Which runs of a claim whose answer was lost are ours after all: owner and epoch are as that claim sets them, and the log ends with its very record.
select w.run_id, false as busy, r.epoch, l.seq, r.kind, pgexec.small_text(r.input) as input, r.input is not null as has_input, r.priority, r.created_at,
  r.inbox, r.depth, r.parent_run_id,
  coalesce(r.max_tokens, 0), pgexec.nano_usd(r.max_cost_usd), coalesce(r.max_nodes, 0)::bigint, coalesce(r.max_wall_ms, 0),
  case when r.deadline is null then 0 else greatest(least(extract(epoch from r.deadline) * 1000000, 253402128000000000), 1) end::bigint, coalesce(r.max_parallel, 0), coalesce(r.soft_limit, 0)::float8
from unnest($2::text[]::uuid[], $3::bigint[], $4::bytea[]) as w (run_id, epoch, record)
join pgexec.runs r on r.run_id = w.run_id and r.owner = $1::integer and r.epoch = w.epoch + 1
cross join lateral (
  select l.seq, l.record from pgexec.run_log l where l.run_id = w.run_id order by l.seq desc limit 1
) l
where l.record = w.record
