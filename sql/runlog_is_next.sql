-- Whether a run's owner may append behind that head, by the rule of every append, for a record that transaction $5 has written and not committed: that it is in progress says that this is the same server.
select pgexec.may_append($1::uuid, $2::bigint, $3::integer, $4::bigint)
  and $5::text::xid8 in (select pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()))
