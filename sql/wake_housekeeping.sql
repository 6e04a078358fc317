-- Makes the partitions of the coming weeks; concurrent callers are kept apart by the transaction's advisory try-lock (1885824376, 0), and nobody waits.
select pgexec.ensure_partitions()
