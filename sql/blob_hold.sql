-- Has a run refer to blobs that are there already; the function touches their rows under their locks.
select pgexec.hold_blobs($1, $2, $3)
