-- All that has reached run $1 from outside, with the version that a parking statement names, as of one snapshot (G4): one row, and more when there are several signals that are not consumed yet, the $4 that were sent first in that order, and ends of the child runs of nodes $3, of which one is the last that brings them to $5 bytes or more. A payload that is not small is null, and so are those that would bring their sum over $5 bytes: they are read by themselves. Marks the signals $2 on the way, which the log has consumed, if it has its head at $6 and the run is owner $7's at epoch $8; no lock is waited for.
with marked as (
  update pgexec.signals s
  set consumed_at = clock_timestamp()
  where s.signal_id in (
    select c.signal_id from pgexec.signals c
    where c.run_id = $1::uuid and c.signal_id = any ($2::bigint[]) and c.consumed_at is null
      and case when $2::bigint[] <> '{}' then pgexec.may_append($1::uuid, $6::bigint, $7::integer, $8::bigint) end
    for update skip locked)
), found as (
  select s.signal_id, s.node_id, s.name as what, case when sum(octet_length(s.payload)) over (order by s.signal_id) <= $5::bigint then s.payload end as payload,
    greatest(least(extract(epoch from s.created_at) * 1000000, 253402128000000000), 1)::bigint as sent_us,
    null::uuid as child, null::text as error, null::bytea as record,
    0::bigint as input_tokens, 0::bigint as output_tokens, 0::numeric as cost_usd, 0::bigint as unpriced, 0::bigint as nodes
  from (
    select s.signal_id, s.node_id, s.name, pgexec.small_text(s.payload) as payload, s.created_at
    from pgexec.signals s
    where s.run_id = $1::uuid and s.consumed_at is null and s.signal_id <> all ($2::bigint[])
    order by s.signal_id
    limit $4
  ) s
  union all
  select 0, c.parent_node_id, c.status, null, 0, c.run_id, c.error, c.record,
    c.input_tokens, c.output_tokens, c.cost_usd, c.unpriced, c.nodes_done
  from (
    select c.*, sum(c.bytes) over (order by c.run_id) - c.bytes as before
    from (
      select c.parent_node_id, c.status, c.run_id, left(c.error, 20000) as error, l.record, c.input_tokens, c.output_tokens, c.cost_usd, c.unpriced, c.nodes_done,
        coalesce(octet_length(l.record), 0) + coalesce(octet_length(left(c.error, 20000)), 0) as bytes
      from pgexec.runs c
      left join pgexec.run_log l on l.run_id = c.run_id and l.seq = c.result_seq
      where c.parent_run_id = $1::uuid and c.parent_node_id = any ($3::text[])
        and c.status in ('succeeded', 'failed', 'cancelled')
    ) c
  ) c
  where c.before < $5::bigint
)
select r.inbox, coalesce(r.wanted, ''), left(coalesce(r.wanted_reason, ''), 20000),
  coalesce(r.max_tokens, 0), pgexec.nano_usd(r.max_cost_usd), coalesce(r.max_nodes, 0)::bigint, coalesce(r.max_wall_ms, 0),
  case when r.deadline is null then 0 else greatest(least(extract(epoch from r.deadline) * 1000000, 253402128000000000), 1) end::bigint, coalesce(r.max_parallel, 0), r.soft_limit::float8,
  f.signal_id, coalesce(f.node_id, ''), coalesce(f.what, ''), f.payload, coalesce(f.sent_us, 0),
  f.child, coalesce(f.error, ''), f.record,
  coalesce(f.input_tokens, 0), coalesce(f.output_tokens, 0), pgexec.nano_usd(f.cost_usd), coalesce(f.unpriced, 0), coalesce(f.nodes, 0)
from pgexec.runs r
left join found f on true
where r.run_id = $1::uuid
order by f.signal_id
