package pgexec_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// patience bounds every wait in these tests; nothing is asserted about time.
const patience = time.Minute

// bundle is a migrated database with a client on it.
type bundle struct {
	t      *testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	client *pgexec.Client
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	return bundleOn(t, pgtest.DB(t))
}

func bundleOn(t *testing.T, pool *pgxpool.Pool) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	t.Cleanup(cancel)
	client := pgexec.NewClient(pool, &pgexec.ClientConfig{Logger: testLogger(t)})
	t.Cleanup(client.Close)
	return &bundle{t: t, ctx: ctx, pool: pool, client: client}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// replica is a running replica in this process.
type replica struct {
	*pgexec.Runtime
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
}

// replica starts a replica, which is drained at the latest when the test ends.
func (b *bundle) replica(kinds *pgexec.Kinds, mods ...func(*pgexec.Config)) *replica {
	b.t.Helper()
	cfg := &pgexec.Config{Kinds: kinds, Logger: testLogger(b.t), Grace: patience}
	for _, mod := range mods {
		mod(cfg)
	}
	rt, err := pgexec.New(b.pool, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Runtime: rt, t: b.t, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := rt.Run(ctx); err != nil {
			b.t.Errorf("replica: %v", err)
		}
	}()
	b.t.Cleanup(r.drain)
	return r
}

// drain stops the replica as SIGTERM does and waits for it.
func (r *replica) drain() {
	r.stop()
	select {
	case <-r.done:
	case <-time.After(2 * patience):
		r.t.Error("the replica does not stop")
	}
}

// cool waits until the replica has no run in memory: a moment after the database says so of each.
func (r *replica) cool() {
	r.t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for r.HotRuns() > 0 {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("%d runs are still hot", r.HotRuns())
		}
	}
}

func (b *bundle) start(kind string, input any) pgexec.RunID {
	b.t.Helper()
	id, err := b.client.Start(b.ctx, kind, input, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bundle) wait(id pgexec.RunID) *pgexec.Run {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	run, err := b.client.Wait(ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return run
}

func (b *bundle) succeed(id pgexec.RunID) *pgexec.Run {
	b.t.Helper()
	run := b.wait(id)
	if run.Status != pgexec.RunSucceeded {
		b.t.Fatalf("run is %s: %s", run.Status, run.Error)
	}
	return run
}

// query reads one value.
func query[T any](b *bundle, statement string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.ctx, statement, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// eventually waits until the condition, a statement that returns a boolean, holds.
func (b *bundle) eventually(statement string, args ...any) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !query[bool](b, statement, args...) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s %v", statement, args)
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatal(b.ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// receive takes the next value of a channel that something must send soon.
func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// checkLog verifies that a run's log is a clean prefix with each node once (G1, G2).
func (b *bundle) checkLog(id pgexec.RunID) {
	b.t.Helper()
	if !query[bool](b, `select count(*) = max(seq) and min(seq) = 1 from pgexec.run_log where run_id = $1`, id) {
		b.t.Errorf("the log of run %s has gaps", id)
	}
	if n := query[int](b, `select count(*) - count(distinct node_id) from pgexec.nodes where run_id = $1`, id); n != 0 {
		b.t.Errorf("run %s: %d nodes are recorded twice", id, n)
	}
}
