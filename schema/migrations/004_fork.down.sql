drop function pgexec.fork(uuid, bigint, text, jsonb);
drop function pgexec.with_output(bytea, jsonb);
drop function pgexec.varint(bigint);
