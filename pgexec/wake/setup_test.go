package wake

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds the wait for anything that is to happen.
const limit = time.Minute

type bundle struct {
	t    *testing.T
	pool *pgxpool.Pool
}

func setup(t *testing.T) *bundle {
	t.Parallel()
	return &bundle{t: t, pool: pgtest.DB(t)}
}

// exec runs one statement.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	pgtest.Exec(b.t, b.pool, sql, args...)
}

// get returns the one value a query answers.
func get[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	return pgtest.Value[T](b.t, b.pool, sql, args...)
}

// insert starts a run and returns its id.
func (b *bundle) insert() runlog.RunID {
	b.t.Helper()
	return get[runlog.RunID](b, `insert into pgexec.runs (kind) values ('k') returning run_id`)
}

// replica lists a replica that is alive as far as the database knows.
func (b *bundle) replica(id runlog.ReplicaID) {
	b.t.Helper()
	b.exec(`insert into pgexec.replicas (replica_id, host, pid, version, kinds, queues, max_hot_runs, backend_pid, backend_start)
		values ($1, 'h', 1, 'v', '{}', '{}', 1, 1, now())`, int32(id))
}

// poolNamed is another pool on the test's database, whose sessions have that name.
func (b *bundle) poolNamed(name string) *pgxpool.Pool {
	b.t.Helper()
	cfg := b.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

// config is that of replica 1, in which nothing but River delivers, unless a test says otherwise.
func (b *bundle) config(id runlog.ReplicaID) Config {
	return Config{
		Pool:                   b.pool,
		ReplicaID:              id,
		WakeFunc:               b.claim(id, nil),
		WokeFunc:               b.nudge,
		Logger:                 slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		LeaderElectionDisabled: true,
	}
}

// nudge tells River of wakes. As it is called by loops that a test may have ended, its errors are of no interest.
func (b *bundle) nudge(queues []string) {
	_, _ = b.pool.Exec(context.Background(), sql.WakeNudge, queues)
}

// start starts a waker of a listed replica; the test's end stops it.
func (b *bundle) start(cfg Config) *Waker {
	b.t.Helper()
	b.replica(cfg.ReplicaID)
	w, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.stop(w) })
	if err := w.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *bundle) stop(w *Waker) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		b.t.Error(err)
	}
}

// delivery is a wake and when the database's clock saw it.
type delivery struct {
	Wake
	claimed bool
	at      time.Time
}

// claim returns a WakeFunc that does what the claim of a replica does to the
// rows: it takes a run that is free and completes the job, in one transaction.
func (b *bundle) claim(id runlog.ReplicaID, seen chan<- delivery) func(context.Context, Wake) Outcome {
	return func(ctx context.Context, w Wake) Outcome {
		d := delivery{Wake: w}
		err := b.pool.QueryRow(ctx, `with claimed as (
				update pgexec.runs set owner = $1, status = 'running', epoch = epoch + 1, wake_job = null, waiting_kinds = null
				where run_id = $2 and owner is null and status in ('queued', 'parked') and run_at <= clock_timestamp()
				returning run_id
			), completed as (
				update pgexec.river_job set state = 'completed', finalized_at = now() where id = $3 and finalized_at is null
			)
			select exists (select from claimed), clock_timestamp()`, int32(id), w.RunID, w.JobID).Scan(&d.claimed, &d.at)
		if err != nil {
			return Again
		}
		if seen != nil {
			seen <- d
		}
		return Done
	}
}

// next returns the next value, failing the test when none comes.
func next[T any](b *bundle, ch <-chan T) T {
	b.t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		b.t.Fatal("nothing was delivered")
		panic("unreachable")
	}
}

// eventually polls until the query answers true.
func (b *bundle) eventually(what, sql string, args ...any) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); ; {
		if get[bool](b, sql, args...) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never came true: %s", what)
		}
		pgtest.Pause(b.t, 20*time.Millisecond)
	}
}

// gate counts calls in progress and holds them until it is opened.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }
