drop function pgexec.retry(uuid);
drop function pgexec.handled_failures(uuid[]);
drop function pgexec.resume(uuid, bigint, numeric, integer, bigint, timestamptz);
drop function pgexec.pause(uuid, text);
drop function pgexec.cancel(uuid, text);
drop function pgexec.lock_level(uuid[]);
drop function pgexec.lock_named_run(uuid);
drop function pgexec.signal(uuid, text, jsonb, text, text);
