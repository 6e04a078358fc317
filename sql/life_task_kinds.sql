-- The kinds that programs outside do, with their policies. A plain read.
select k.kind, k.max_attempts, (extract(epoch from k.min_backoff) * 1000000)::bigint, (extract(epoch from k.max_backoff) * 1000000)::bigint
from pgexec.task_kinds k
