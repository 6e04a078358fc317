-- Whether a run's owner may append behind that head, by the rule of every append, as all others see it whose transaction has just been rolled back.
select pgexec.may_append($1::uuid, $2::bigint, $3::integer, $4::bigint)
