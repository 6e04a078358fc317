-- The view of takeovers_create.sql.
select * from demo_takeovers;
