-- What the agents ask people to approve, in runs that the demo started.
select a.run_id, a.node_id from pgexec.approvals a
