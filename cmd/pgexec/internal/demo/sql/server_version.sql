-- The server's version, as it calls itself.
select current_setting('server_version')
