-- Subscribes this session to the hints that logs have grown.
listen pgexec_log
