package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

// All ready nodes of a run are in flight at once, and no connection of the pool
// is held while they run (C26).
func TestRun_ReadyNodesOverlapWithoutConnections(t *testing.T) {
	b := setup(t)
	const width = 80
	var together sync.WaitGroup
	together.Add(width)
	gate := make(chan struct{})
	kinds := fan(width, func(context.Context, *pgexec.Node, none) (int, error) {
		together.Done()
		<-gate
		return 0, nil
	}, nil)
	b.replica(kinds)
	id := b.start("fan", nil)
	all := make(chan struct{})
	go func() {
		together.Wait()
		close(all)
	}()
	receive(t, "moment at which all of them are in flight", all)
	// River's listener keeps one connection; loops borrow others for moments.
	const busy = `select count(*) = 0 from pg_stat_activity
		where datname = current_database() and state like 'idle in transaction%'`
	b.eventually(busy)
	close(gate)
	b.succeed(id)
}

// A node needs no connection while its handler runs: every one but the session's dies
// meanwhile, and it is recorded, with its first attempt (C26).
func TestRun_ConnectionsDieWhileItsNodeRuns(t *testing.T) {
	b := setup(t)
	pool := b.poolNamed("served")
	bl := newBlocker()
	bundleOn(t, pool).replica(bl.kinds("only"), named("only"))
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	const others = `from pg_stat_activity where datname = current_database() and application_name like 'served%'
		and pid <> all(array(select backend_pid from pgexec.replicas))`
	if n := query[int](b, `select count(pg_terminate_backend(pid, 10000)) `+others); n == 0 {
		t.Fatal("there was no connection to end")
	}
	close(bl.gate)
	if run := b.succeed(id); string(run.Result) != `"attempt 1 on only"` || run.Epoch != 1 {
		t.Errorf("result %s after %d claims", run.Result, run.Epoch)
	}
	if n := len(bl.started); n != 0 {
		t.Errorf("the node was executed %d times more", n)
	}
	b.checkLog(id)
}

// poolNamed is another pool on the test's database, whose sessions' names begin so.
func (b *bundle) poolNamed(name string, mods ...func(*pgxpool.Config)) *pgxpool.Pool {
	b.t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	for _, mod := range mods {
		mod(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

// fan returns kinds of a run whose root spawns that many nodes of kind leg.
func fan(width int, leg pgexec.Handler[none, int], opts *pgexec.KindOpts) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "fan", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		for range width {
			n.Spawn("leg", nil, nil)
		}
		return width, nil
	}, nil)
	pgexec.AddKind(kinds, "leg", leg, opts)
	return kinds
}

// gauge counts what is in flight and remembers the most there ever was.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for {
		most := g.most.Load()
		if n <= most || g.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (g *gauge) exit() { g.now.Add(-1) }

func TestRuntime_LimitsOfRunKindAndReplicaHold(t *testing.T) {
	for name, tc := range map[string]struct {
		runs int
		opts *pgexec.KindOpts
		mod  func(*pgexec.Config)
	}{
		"per run":     {1, nil, func(c *pgexec.Config) { c.MaxParallelPerRun = 3 }},
		"per kind":    {3, &pgexec.KindOpts{MaxParallel: 3}, func(*pgexec.Config) {}},
		"per replica": {3, nil, func(c *pgexec.Config) { c.MaxParallel = 3 }},
		"hot runs":    {9, &pgexec.KindOpts{}, func(c *pgexec.Config) { c.MaxHotRuns = 1; c.MaxParallelPerRun = 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var g gauge
			b.replica(fan(12, func(context.Context, *pgexec.Node, none) (int, error) {
				g.enter()
				defer g.exit()
				time.Sleep(2 * time.Millisecond) // what is being limited: time in flight
				return 0, nil
			}, tc.opts), tc.mod)
			var ids []pgexec.RunID
			for range tc.runs {
				ids = append(ids, b.start("fan", nil))
			}
			for _, id := range ids {
				b.succeed(id)
			}
			if most := g.most.Load(); most > 3 {
				t.Errorf("%d nodes in flight at once, want at most 3", most)
			}
		})
	}
}

// A run whose frontier holds only kinds that no replica has waits, visibly, for one that has them.
func TestRun_WaitsForAReplicaWithItsKind(t *testing.T) {
	b := setup(t)
	old := pgexec.NewKinds()
	pgexec.AddKind(old, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("novel", nil, nil)
		return 0, nil
	}, nil)
	b.replica(old, named("old"))
	id := b.start("root", nil)
	b.eventually(`select waiting_kinds = '{novel}' and status = 'queued' and wake_job is null from pgexec.runs where run_id = $1`, id)
	run, err := b.client.Get(b.ctx, id)
	if err != nil || !strings.Contains(run.Reason, "novel") {
		t.Errorf("reason %q, %v", run.Reason, err)
	}
	fresh := pgexec.NewKinds()
	pgexec.AddKind(fresh, "novel", func(context.Context, *pgexec.Node, none) (string, error) { return "new", nil }, nil)
	b.replica(fresh, named("fresh"))
	if got := string(b.succeed(id).Result); got != `"new"` {
		t.Errorf("result %s", got)
	}
	unknown := b.start("nobody has this", nil)
	b.eventually(`select coalesce(reason, '') like '%nobody has this%' from pgexec.runs where run_id = $1`, unknown)
}

// logReads notes for each statement that reads a whole log how many rows it returned.
type logReads struct {
	mu   sync.Mutex
	rows []int64
}

type isLogRead struct{}

func (r *logReads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, isLogRead{}, d.SQL == sql.RunlogRead)
}

func (r *logReads) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if ctx.Value(isLogRead{}) == true {
		r.note(d.CommandTag)
	}
}

func (r *logReads) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *logReads) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if d.SQL == sql.RunlogRead {
		r.note(d.CommandTag)
	}
}

func (r *logReads) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (r *logReads) note(tag pgconn.CommandTag) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, tag.RowsAffected())
}

// A hot run is never read again. Over 500 nodes, of which a second replica takes over the
// latter half, the log is read once, by the second claim; and all that the server has read
// of the tables of logs, for whatever statement, is this and a row for each append: its head.
func TestRun_HotRunIsNeverReadAgain(t *testing.T) {
	const nodes, half = 500, 250
	b := setup(t)
	trace := &logReads{}
	pool := b.poolNamed("traced", func(c *pgxpool.Config) { c.ConnConfig.Tracer = trace })
	traced := bundleOn(t, pool)
	there := make(chan struct{}, 1)
	var first *replica
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "link", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		if left == half+1 {
			first.stop()
			there <- struct{}{}
		}
		if left > 1 {
			n.Spawn("link", left-1, nil)
		}
		return left, nil
	}, nil)
	first = traced.replica(kinds)
	id := traced.start("link", nodes)
	receive(t, "node in the middle", there)
	first.drain()
	second := traced.replica(kinds)
	b.eventually(`select status = 'succeeded' from pgexec.runs where run_id = $1`, id)
	second.drain()
	pool.Close()
	// What connections have counted is there when they have ended.
	b.eventually(`select count(*) = 0 from pg_stat_activity where datname = current_database() and application_name like 'traced%'`)

	records := query[int64](b, `select count(*) from pgexec.run_log where run_id = $1`, id)
	const rowsRead = `select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_user_tables where relname ~ '^run_log'`
	b.eventually(`select (`+rowsRead+`) > $1`, records)
	if len(trace.rows) != 1 || trace.rows[0] < half {
		t.Fatalf("the log was read with %d rows, want once, for the claim in the middle", trace.rows)
	}
	want, read := records+trace.rows[0], query[int64](b, rowsRead)
	if read > want*11/10 { // some are of appends that were tried again
		t.Errorf("%d rows of logs were read for a log of %d that was read once with %d", read, records, trace.rows[0])
	}
}

// C30: what a turn writes does not depend on how long the run already is.
func TestRun_BytesPerTurnDoNotGrow(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "turn", func(_ context.Context, n *pgexec.Node, left int) (string, error) {
		if left > 1 {
			n.Spawn("turn", left-1, nil)
		}
		return strings.Repeat("word ", 100), nil
	}, nil)
	b.replica(kinds)
	perTurn := func(turns int) float64 {
		id := b.start("turn", turns)
		b.succeed(id)
		return query[float64](b, `select avg(length(record))::float8 from pgexec.run_log where run_id = $1`, id)
	}
	short, long := perTurn(50), perTurn(500)
	if long > short*1.05 {
		t.Errorf("%.0f bytes per turn in a run of 500, %.0f in one of 50", long, short)
	}
}

func TestClient_StartIsIdempotentByKey(t *testing.T) {
	b := setup(t)
	opts := &pgexec.StartOpts{IdempotencyKey: "order 7", Labels: map[string]string{"order": "7"}, Priority: 1, Queue: "slow"}
	first, err := b.client.Start(b.ctx, "k", map[string]int{"a": 1, "b": 2}, opts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.client.Start(b.ctx, "k", map[string]int{"b": 2, "a": 1}, opts)
	if err != nil || again != first {
		t.Errorf("second start: %v, %v, want %v", again, err, first)
	}
	if _, err := b.client.Start(b.ctx, "k", 3, opts); !errors.Is(err, pgexec.ErrIdempotencyMismatch) {
		t.Errorf("another input with the same key: %v", err)
	}
	if _, err := b.client.Start(b.ctx, "k", "a\x00b", nil); err == nil || !strings.Contains(err.Error(), "jsonb") {
		t.Errorf("U+0000 in an input: %v", err)
	}
	if _, err := b.client.Get(b.ctx, pgexec.RunID{}); !errors.Is(err, pgexec.ErrRunNotFound) {
		t.Errorf("unknown run: %v", err)
	}
	runs, err := b.client.List(b.ctx, &pgexec.ListOpts{Status: []pgexec.RunStatus{pgexec.RunQueued}})
	if err != nil || len(runs) != 1 || runs[0].ID != first || runs[0].Labels["order"] != "7" || runs[0].Queue != "slow" {
		t.Errorf("list: %v, %v", runs, err)
	}
}

func TestClient_WatchSeesEveryRecordOnceInOrder(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "link", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		if left > 1 {
			n.Spawn("link", left-1, nil)
		}
		return left, nil
	}, nil)
	id := b.start("link", 100)
	b.replica(kinds)
	want := pgexec.Seq(1)
	for e, err := range b.client.Watch(b.ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != want {
			t.Fatalf("seq %d, want %d", e.Seq, want)
		}
		want++
	}
	if want != 103 { // a claim, 100 nodes, the end
		t.Errorf("the last seq seen is %d, want 102", want-1)
	}
}

func TestNew_RefusesConfigsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	kinds := fan(1, func(context.Context, *pgexec.Node, none) (int, error) { return 0, nil }, nil)
	for _, cfg := range []*pgexec.Config{nil, {}, {Kinds: kinds, MaxHotRuns: -1}, {Kinds: kinds, Grace: -1}} {
		if _, err := pgexec.New(pool, cfg); err == nil {
			t.Errorf("config %+v is accepted", cfg)
		}
	}
	rt, err := pgexec.New(pool, &pgexec.Config{Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), "pgexec migrate up") {
		t.Errorf("run without a schema: %v", err)
	}
}
