drop trigger signals_check_address on pgexec.signals;
drop function pgexec.signals_check_address();
alter table pgexec.replicas drop column former_ids;
