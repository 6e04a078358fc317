-- What a chat's last node asks of the database.
select sum(hits) as hits, count(*) as turns from unnest($1::integer[]) as t (hits)
