-- Subscribes the session to the ids of runs that something has reached from outside.
listen pgexec_control
