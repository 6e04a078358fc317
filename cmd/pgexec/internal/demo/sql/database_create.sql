-- A database of the demo's own: nobody else's data is touched, and no setting of the server's template matters.
create database %s template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'
