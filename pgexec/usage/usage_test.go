package usage

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trace gathers the transactions that a reporter sends.
type trace struct {
	mu      sync.Mutex
	batches []string
}

func (tr *trace) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (tr *trace) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (tr *trace) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.batches = append(tr.batches, "")
	return ctx
}

func (tr *trace) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.batches[len(tr.batches)-1] += d.SQL
}

func (tr *trace) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

type bundle struct {
	t     *testing.T
	pool  *pgxpool.Pool
	trace *trace
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	cfg := pgtest.DB(t).Config()
	tr := &trace{}
	cfg.ConnConfig.Tracer = tr
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &bundle{t: t, pool: pool, trace: tr}
}

// reporter is one that reports when it is told to.
func (b *bundle) reporter(id runlog.ReplicaID) *Reporter {
	return New(b.pool, id, slog.New(slog.NewTextHandler(b.t.Output(), nil)))
}

// claimed makes runs that a replica owns, all at epoch 1.
func (b *bundle) claimed(n int, owner runlog.ReplicaID) []runlog.RunID {
	b.t.Helper()
	ids := pgtest.Value[[]runlog.RunID](b.t, b.pool, `with made as (insert into pgexec.runs (kind) select 'k' from generate_series(1, $1) returning run_id)
		select array_agg(run_id) from made`, n)
	b.claim(ids, owner, 1)
	return ids
}

func (b *bundle) claim(ids []runlog.RunID, owner runlog.ReplicaID, epoch int) {
	b.t.Helper()
	pgtest.Exec(b.t, b.pool, `update pgexec.runs set status = 'running', owner = $2, epoch = $3, wake_job = null where run_id = any ($1)`, ids, int32(owner), epoch)
}

// shown is what the overview shows of a run, and whether it is from run_usage.
func (b *bundle) shown(id runlog.RunID) string {
	b.t.Helper()
	return pgtest.Value[string](b.t, b.pool, `select concat_ws(' ', tokens, cost_usd, unpriced, nodes_done, (select 'epoch ' || u.epoch from pgexec.run_usage u where u.run_id = o.run_id))
		from pgexec.run_overview o where run_id = $1`, id)
}

func (b *bundle) check(id runlog.RunID, want string) {
	b.t.Helper()
	if got := b.shown(id); got != want {
		b.t.Errorf("shown is %q, want %q", got, want)
	}
}

func spent(nodes int64) graph.Usage {
	return graph.Usage{Nodes: nodes, InputTokens: 10 * nodes, OutputTokens: nodes, CostNanoUSD: nodes * 1_000_000}
}

func TestReporter_OneTransactionForAll(t *testing.T) {
	b := setup(t)
	r := b.reporter(1)
	ids := b.claimed(1000, 1)
	var meters []*Meter
	for _, id := range ids {
		meters = append(meters, r.Open(id, 1))
	}
	r.report(t.Context(), reportTimeout)
	for n := range int64(3) {
		for range 5 {
			for _, m := range meters {
				m.Set(spent(n + 1))
			}
		}
		r.report(t.Context(), reportTimeout)
		r.report(t.Context(), reportTimeout)
	}
	for _, m := range meters { // nothing new
		m.Set(spent(3))
	}
	r.report(t.Context(), reportTimeout)
	if n := len(b.trace.batches); n != 3 {
		t.Errorf("%d transactions, want 3: one for each time that anything had changed", n)
	}
	for _, batch := range b.trace.batches {
		if !strings.Contains(batch, "'synchronous_commit', 'off'") || strings.Contains(batch, "delete") {
			t.Errorf("a transaction is %s", batch)
		}
	}
	b.check(ids[999], "33 0.003 0 3 epoch 1")
	if kept := pgtest.Value[bool](t, b.pool, `select count(*) = 1000 and count(distinct xmin::text) = 1 from pgexec.runs`); !kept {
		t.Error("the rows of runs were changed")
	}
}

func TestReporter_FormerOwnerIsFenced(t *testing.T) {
	b := setup(t)
	former, later := b.reporter(1), b.reporter(2)
	id := b.claimed(1, 1)[0]
	m := former.Open(id, 1)
	m.Set(spent(5))
	former.report(t.Context(), reportTimeout)
	b.check(id, "55 0.005 0 5 epoch 1")

	// What was given back counts until somebody takes it.
	pgtest.Exec(t, b.pool, `update pgexec.runs set status = 'queued', owner = null`)
	m.Set(spent(6))
	former.report(t.Context(), reportTimeout)
	b.check(id, "66 0.006 0 6 epoch 1")

	b.claim([]runlog.RunID{id}, 2, 2)
	m.Set(spent(9)) // lost with a failover, say
	former.report(t.Context(), reportTimeout)
	b.check(id, "66 0.006 0 6 epoch 1")
	next := later.Open(id, 2)
	next.Set(spent(7))
	later.report(t.Context(), reportTimeout)
	b.check(id, "77 0.007 0 7 epoch 2")

	m.Settle()
	former.report(t.Context(), reportTimeout)
	b.check(id, "77 0.007 0 7 epoch 2")

	// A row that somebody put there meanwhile, at a later epoch.
	pgtest.Exec(t, b.pool, `update pgexec.run_usage set epoch = 3`)
	next.Set(spent(8))
	later.report(t.Context(), reportTimeout)
	if n := pgtest.Value[int](t, b.pool, `select nodes_done from pgexec.run_usage`); n != 7 {
		t.Errorf("%d nodes, want the later owner's 7", n)
	}
}

func TestReporter_NothingIsLeftOfRunsThatRest(t *testing.T) {
	b := setup(t)
	r := b.reporter(1)
	ids := b.claimed(3, 1)
	long, short, again := r.Open(ids[0], 1), r.Open(ids[1], 1), r.Open(ids[2], 1)
	long.Set(spent(1))
	again.Set(spent(1))
	r.report(t.Context(), reportTimeout)
	short.Set(spent(1))
	for _, m := range []*Meter{long, short, again} {
		m.Settle()
	}
	pgtest.Exec(t, b.pool, `update pgexec.runs set status = 'parked', owner = null, nodes_done = 1, input_tokens = 10, output_tokens = 1, cost_usd = 0.001`)
	b.claim(ids[2:], 1, 2)
	r.Open(ids[2], 2).Set(spent(2))
	r.report(t.Context(), reportTimeout)
	for i, want := range []string{"11 0.001 0 1", "11 0.001 0 1", "22 0.002 0 2 epoch 2"} {
		b.check(ids[i], want)
	}
	if n := len(b.trace.batches); n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
}

// While the database is away nothing is lost, and what settles meanwhile is not shown any more.
func TestReporter_GoesOnAfterAnOutage(t *testing.T) {
	b := setup(t)
	r := b.reporter(1)
	ids := b.claimed(2, 1)
	stays, settles := r.Open(ids[0], 1), r.Open(ids[1], 1)
	stays.Set(spent(1))
	settles.Set(spent(1))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r.report(gone, reportTimeout)
	stays.Set(spent(2))
	settles.Settle()
	r.Start()
	r.Close()
	b.check(ids[0], "22 0.002 0 2 epoch 1")
	if n := pgtest.Value[int](t, b.pool, `select count(*) from pgexec.run_usage`); n != 1 {
		t.Errorf("%d rows, want that of the hot run only", n)
	}
}

// C25: the pool may be one for a transaction-mode pooler, without prepared statements.
func TestReporter_WithoutPreparing(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			b := setup(t)
			cfg := b.pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			r := New(pool, 1, slog.New(slog.NewTextHandler(t.Output(), nil)))
			ids := b.claimed(2, 1)
			stays, rests := r.Open(ids[0], 1), r.Open(ids[1], 1)
			stays.Set(spent(1))
			rests.Set(spent(1))
			r.report(t.Context(), reportTimeout)
			stays.Set(spent(2))
			rests.Settle()
			r.report(t.Context(), reportTimeout)
			b.check(ids[0], "22 0.002 0 2 epoch 1")
			if n := pgtest.Value[int](t, b.pool, `select count(*) from pgexec.run_usage`); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}
