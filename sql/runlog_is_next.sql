-- Whether a run's owner may append behind that head, by the rule of every append, for a record that transaction $5 has written and not committed: that it is in progress says that this is the same server. One that this server does not know yet is an error.
select pgexec.may_append($1::uuid, $2::bigint, $3::integer, $4::bigint)
  and coalesce(pg_catalog.pg_xact_status($5::text::xid8) = 'in progress', false)
