-- A database of the demo's own: nobody else's data is touched.
create database %s
