-- Subscribes this session to pings, its own among them.
listen pgexec_ping
