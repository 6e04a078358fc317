-- The rule of an append is now part of the statement for many runs, whose connection plans it by key.
drop function pgexec.may_append(uuid[], bigint[], integer[], bigint[]);
