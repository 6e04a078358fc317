-- Has pg_stat_activity show whose session it is, from when its replica's id is known.
select set_config('application_name', $1, false)
