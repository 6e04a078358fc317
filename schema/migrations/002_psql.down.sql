drop view pgexec.replica_overview;
drop view pgexec.run_overview;
drop view pgexec.nodes;
drop function pgexec.decode(bytea);
drop function pgexec.decode_message(bytea, integer, integer, text, integer);
drop function pgexec.json_lossy(bytea);
drop function pgexec.json_numbers_lossy(text);
drop function pgexec.utf8_lossy(bytea);
