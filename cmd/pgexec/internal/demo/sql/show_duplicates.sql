-- Is any node recorded twice, does any log have a gap?
select count(distinct run_id) as runs, count(*) as nodes,
  count(*) - count(distinct (run_id, node_id)) as duplicates,
  (select count(*) from (select from pgexec.run_log
    group by run_id having max(seq) <> count(*)) l) as gaps
from pgexec.nodes;
