-- Shows what runs have spent by now, each only while it is replica $1's at that epoch, or was given back by it and is nobody else's yet; a row of a later owner is left as it is. The row of the run itself is read and neither changed nor locked.
insert into pgexec.run_usage as u (run_id, epoch, input_tokens, output_tokens, cost_usd, unpriced, nodes_done)
select s.run_id, s.epoch, s.input_tokens, s.output_tokens, trim_scale(s.cost_nano_usd / 1000000000::numeric), s.unpriced, s.nodes
from unnest($2::text[]::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
  as s (run_id, epoch, input_tokens, output_tokens, cost_nano_usd, unpriced, nodes)
-- Outside of the WHERE of the inner query, so that the primary key finds the row.
where (select r.epoch = s.epoch and (r.owner = $1::integer or r.status = 'queued') from pgexec.runs r where r.run_id = s.run_id)
order by s.run_id
on conflict (run_id) do update
set epoch = excluded.epoch, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, cost_usd = excluded.cost_usd,
  unpriced = excluded.unpriced, nodes_done = excluded.nodes_done
where u.epoch <= excluded.epoch
