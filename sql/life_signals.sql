-- Of the signals to run $1 that are not consumed yet, the $6 sent first that end one of the waits $2 to $5: each is for a name, at a node, for what is addressed to the node alone or not, and for what was sent at that time or later. Payloads that are not small, or would bring their sum over $7 bytes, are null: they are read by themselves. A read without a lock.
select s.signal_id, s.name, s.node_id, case when sum(octet_length(s.payload)) over (order by s.signal_id) <= $7::bigint then s.payload end, s.sent_us
from (
  select s.signal_id, s.name, coalesce(s.node_id, '') as node_id, pgexec.small_text(s.payload) as payload, t.sent_us
  from pgexec.signals s
  cross join lateral (select greatest(least(extract(epoch from s.created_at) * 1000000, 253402128000000000), 1)::bigint as sent_us) t
  where s.run_id = $1::uuid and s.consumed_at is null
    and exists (
      select from unnest($2::text[], $3::text[], $4::boolean[], $5::bigint[]) as w (name, node_id, addressed, since_us)
      where w.name = s.name and case when coalesce(s.node_id, '') = '' then not w.addressed else w.node_id = s.node_id end and w.since_us <= t.sent_us)
  order by s.signal_id
  limit $6
) s
order by s.signal_id
