package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// marksTables note, by the database's clock, when each node of kind "marked" was in flight,
// and when a replica was taken off the list.
const marksTables = `
create table marks (id bigint generated always as identity primary key, host text not null,
	started_at timestamptz not null default clock_timestamp(), ended_at timestamptz);
create table burials (host text not null, at timestamptz not null);
create function note_burial() returns trigger language plpgsql as $$
begin
	insert into public.burials values (old.host, clock_timestamp());
	return null;
end $$;
create trigger note_burial after delete on pgexec.replicas for each row execute function note_burial()`

// mostAtOnce is the most nodes that were in flight at any instant. One whose replica died or froze
// counts until that replica was taken off the list. A start that the server noted when its
// process was dead and buried already is none.
const mostAtOnce = `
with spans as materialized (
	select m.started_at, least(m.ended_at, (select min(b.at) from burials b where b.host = m.host and b.at > m.started_at)) as ended_at
	from marks m
)
select max((select count(*) from spans o where o.started_at <= s.started_at and o.ended_at > s.started_at))
from spans s where s.ended_at is not null`

// addMarked adds kind "marked", whose nodes note when they are in flight.
func addMarked(kinds *pgexec.Kinds) {
	open := sync.OnceValues(func() (*pgxpool.Pool, error) {
		return pgxpool.New(context.Background(), os.Getenv(replicaURL))
	})
	pgexec.AddKind(kinds, "marked", func(ctx context.Context, _ *pgexec.Node, _ struct{}) (int64, error) {
		pool, err := open()
		if err != nil {
			return 0, err
		}
		var id int64
		err = pool.QueryRow(ctx, `insert into marks (host) values ($1) returning id`, os.Getenv(replicaHost)).Scan(&id)
		if err != nil {
			return 0, err
		}
		select {
		case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		_, err = pool.Exec(ctx, `update marks set ended_at = clock_timestamp() where id = $1`, id)
		return id, err
	}, nil)
}

// At no instant are more nodes of a kind in flight than its limit, while replicas are
// killed, drained, frozen and started again at random; every run ends, and no slot is left.
func TestFleetLimit_HoldsWhileReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := stormOf(t)
	s.chaos = min(s.chaos, 20*time.Second)
	rng := rand.New(rand.NewPCG(s.seed, 0))
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.chaos+2*s.settle)
	defer cancel()
	if _, err := pool.Exec(ctx, marksTables); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `insert into pgexec.kind_limits (kind, max_in_flight) values ('marked', $1)`, limit); err != nil {
		t.Fatal(err)
	}
	// More than the slots can do in the time, so that they are always wanted.
	runs := int(s.chaos/(60*time.Millisecond)) * limit
	if _, err := pool.Exec(ctx, `insert into pgexec.runs (kind) select 'marked' from generate_series(1, $1)`, runs); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, rng, pgtest.URL(t))
	f.chaos(s.chaos)
	waitForAll(ctx, t, pool, s)
	most := query[int](ctx, t, pool, mostAtOnce)
	t.Logf("%v; %d processes, %d runs, %d starts; at most %d in flight", f.done, f.starts, runs, query[int](ctx, t, pool, `select count(*) from marks`), most)
	if most > limit {
		t.Errorf("%d nodes in flight at once, want at most %d", most, limit)
	}
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.runs where status <> 'succeeded'`); n > 0 {
		t.Errorf("%d runs have not succeeded", n)
	}
	f.drain()
	checkQuiet(ctx, t, pool, 0)
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.kind_slots`); n > 0 {
		t.Errorf("%d slots are left", n)
	}
}
