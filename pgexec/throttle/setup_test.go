package throttle

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds the wait for anything that is to happen.
const patience = time.Minute

type bundle struct {
	t    *testing.T
	pool *pgxpool.Pool
	next runlog.ReplicaID
}

func setup(t *testing.T) *bundle {
	t.Parallel()
	return &bundle{t: t, pool: pgtest.DB(t)}
}

// exec runs one statement.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// get returns the one value a query answers.
func get[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// eventually polls until the query answers true.
func (b *bundle) eventually(sql string, args ...any) {
	b.t.Helper()
	b.until(sql, func() bool { return get[bool](b, sql, args...) })
}

func (b *bundle) until(what string, cond func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			b.t.Fatalf("never came true: %s", what)
		}
		pause(b.t, 5*time.Millisecond)
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// limit sets the limit of kind k.
func (b *bundle) limit(maxInFlight any, rate any, per string, burst int) {
	b.t.Helper()
	b.exec(`insert into pgexec.kind_limits (kind, max_in_flight, rate, per, burst) values ('k', $1, $2, $3::interval, $4)
		on conflict (kind) do update set max_in_flight = $1, rate = $2, per = $3::interval, burst = $4`, maxInFlight, rate, per, burst)
}

// replica starts the throttle of one more listed replica.
func (b *bundle) replica() *Throttle { return b.replicaThat(nil) }

func (b *bundle) replicaThat(declares map[string]Limit) *Throttle {
	b.t.Helper()
	b.next++
	b.exec(`insert into pgexec.replicas (replica_id, host, pid, version, kinds, queues, max_hot_runs, backend_pid, backend_start)
		values ($1, 'h', 1, 'v', '{}', '{}', 1, 1, now())`, int32(b.next))
	r := New(Config{
		Pool:      b.pool,
		ReplicaID: b.next,
		Declared:  declares,
		Logger:    slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err := r.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(r.Stop)
	return r
}

// bury does to the rows what the finder of a dead replica does.
func (b *bundle) bury(r *Throttle) {
	b.t.Helper()
	b.exec(`delete from pgexec.replicas where replica_id = $1`, int32(r.cfg.ReplicaID))
}

// node asks for a place under the limit of kind k and waits until it may start.
func node(ctx context.Context, r *Throttle, id ID) (*Ticket, error) {
	granted := make(chan struct{}, 1)
	k := r.Ask(id, time.Now(), func() { granted <- struct{}{} })
	select {
	case <-granted:
		k.Use()
		return k, nil
	case <-ctx.Done():
		k.Release()
		return nil, context.Cause(ctx)
	}
}

// mustStart starts a node.
func (b *bundle) mustStart(r *Throttle, id ID) *Ticket {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	k, err := node(ctx, r, id)
	if err != nil {
		b.t.Fatalf("a node does not start: %v", err)
	}
	return k
}

// crew runs nodes one after the other in some goroutines, until it is stopped.
type crew struct {
	stop context.CancelFunc
	work sync.WaitGroup
	runs atomic.Int64
}

// crewOf has n goroutines run nodes whose work is do.
func (b *bundle) crewOf(r *Throttle, n int, id ID, do func()) *crew {
	ctx, cancel := context.WithCancel(b.t.Context())
	c := &crew{stop: cancel}
	for range n {
		c.work.Go(func() {
			for {
				k, err := node(ctx, r, id)
				if err != nil {
					return
				}
				do()
				c.runs.Add(1)
				k.Release()
			}
		})
	}
	b.t.Cleanup(c.end)
	return c
}

func (c *crew) end() {
	c.stop()
	c.work.Wait()
}

// gauge counts what is in flight and remembers the most there ever was.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) during(d time.Duration) {
	n := g.now.Add(1)
	for {
		most := g.most.Load()
		if n <= most || g.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(d) // what is being limited: time in flight
	g.now.Add(-1)
}
