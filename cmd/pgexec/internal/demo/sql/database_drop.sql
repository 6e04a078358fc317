-- Removes the demo's database and ends whoever is still connected to it.
drop database if exists %s with (force)
