-- Safe to repeat, since a node may run again after a crash.
insert into public.answers (topic, hits) values ($1, $2) on conflict (topic) do nothing
