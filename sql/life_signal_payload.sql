-- The payload of signal $1, whatever its size: a plain read by primary key.
select s.payload::text from pgexec.signals s where s.signal_id = $1
