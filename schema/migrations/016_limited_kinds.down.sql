drop trigger kind_limits_check_kind on pgexec.kind_limits;
drop function pgexec.kind_limits_check_kind();
