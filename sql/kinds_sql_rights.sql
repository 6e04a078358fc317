-- Whose rights statements on this connection have, and where.
select current_user::text, pg_catalog.current_database()::text
