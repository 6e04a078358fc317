package wake

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// running is the number of jobs that count as being worked on.
const running = `select count(*) from pgexec.river_job where state = 'running'`

// C20: Stop fetches no more, waits for the looks in progress, and leaves no job
// running: what ended with Again is free for other replicas at once.
func TestStop_LeavesNoJobRunning(t *testing.T) {
	b := setup(t)
	hold := newGate()
	cfg := b.config(1)
	cfg.MaxParallel = 4
	cfg.WakeFunc = func(context.Context, Wake) Outcome {
		hold.entered <- struct{}{}
		<-hold.open
		return Again
	}
	w := b.start(cfg)
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 20)`)
	for range 4 {
		next(b, hold.entered)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		t.Fatalf("Stop did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	hold.release()
	if err := next(b, stopped); err != nil {
		t.Fatal(err)
	}
	if n := get[int](b, running); n != 0 {
		t.Errorf("%d jobs are left running", n)
	}
	if n := get[int](b, `select count(*) from pgexec.river_job where state = 'available' and scheduled_at <= clock_timestamp() and attempt = 0`); n != 20 {
		t.Errorf("%d jobs are free for others, want 20", n)
	}
	if len(hold.entered) != 0 {
		t.Errorf("%d wakes were fetched after Stop", len(hold.entered))
	}
}

// hears inserts runs until one of them is delivered.
func (b *bundle) hears(seen <-chan delivery) {
	b.t.Helper()
	mine := make(map[runlog.RunID]bool)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		mine[b.insert()] = true
		select {
		case d := <-seen:
			if mine[d.RunID] {
				return
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	b.t.Fatal("no run is delivered")
}

// What a draining replica gives back, from the moment on when it takes no run, is fetched elsewhere without waiting for a poll.
func TestStop_OthersGoOnAtOnce(t *testing.T) {
	b := setup(t)
	hold := newGate()
	cfg := b.config(1)
	cfg.WakeFunc = func(context.Context, Wake) Outcome {
		hold.entered <- struct{}{}
		<-hold.open
		return Again
	}
	cfg.MaxParallel = 1
	w := b.start(cfg)
	id := b.insert()
	next(b, hold.entered)

	seen := make(chan delivery, 10_000)
	other := b.config(2)
	other.WakeFunc = b.claim(2, seen)
	other.PollInterval = time.Hour
	other.SweepInterval = time.Hour
	b.start(other)
	b.hears(seen) // or had looked when it started
	b.hears(seen)
	before := time.Now()
	w.LeaveToOthers()
	hold.release()
	b.stop(w)
	for next(b, seen).RunID != id {
	}
	t.Logf("given back and claimed elsewhere after %v", time.Since(before))
}

// A WakeFunc that does not return keeps Stop only as long as its context
// allows; then its own context ends, and Stop may be called again.
func TestStop_GivesUpWithItsContext(t *testing.T) {
	b := setup(t)
	entered := make(chan struct{}, 1)
	cfg := b.config(1)
	cfg.WakeFunc = func(ctx context.Context, _ Wake) Outcome {
		entered <- struct{}{}
		<-ctx.Done()
		return Again
	}
	w := b.start(cfg)
	b.insert()
	next(b, entered)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	b.stop(w)
	if n := get[int](b, running); n != 0 {
		t.Errorf("%d jobs are left running", n)
	}
}

// Stop may come before, during and after Start, and so may the end of Start's
// context: nothing is left, neither a goroutine nor a job.
func TestStop_DuringStart(t *testing.T) {
	b := setup(t)
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 500)`)
	const rounds = 40
	for round := range runlog.ReplicaID(rounds) {
		id := round + 1
		b.replica(id)
		cfg := b.config(id)
		cfg.WakeFunc = func(context.Context, Wake) Outcome { return Again }
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		go func() { started <- w.Start(ctx) }()
		pgtest.Pause(t, rand.N(30*time.Millisecond))
		if round%2 == 0 {
			cancel() // SIGTERM in the middle of the start
			err := next(b, started)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("start: %v", err)
			}
		}
		b.stop(w)
		if round%2 == 1 {
			_ = next(b, started) // either is right: it came before Stop, or it was stopped
		}
		cancel()
		if err := w.Start(t.Context()); err == nil {
			t.Error("a stopped waker starts")
		}
		if n := get[int](b, running); n != 0 {
			t.Fatalf("round %d: %d jobs are left running", round, n)
		}
	}
}

// Start says so when the database is not ready for it, and leaves nothing behind.
func TestStart_Fails(t *testing.T) {
	b := setup(t)
	b.exec(`alter table pgexec.river_queue rename to elsewhere`)
	b.replica(1)
	w, err := New(b.config(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err == nil {
		t.Error("started without River's tables")
	}
	b.stop(w)
}

func TestNew_RefusesBadConfig(t *testing.T) {
	b := setup(t)
	for name, change := range map[string]func(*Config){
		"no pool":       func(c *Config) { c.Pool = nil },
		"no function":   func(c *Config) { c.WakeFunc = nil },
		"no id":         func(c *Config) { c.ReplicaID = 0 },
		"bad queue":     func(c *Config) { c.Queues = []string{"Not A Queue"} },
		"too many":      func(c *Config) { c.MaxParallel = 100_000 },
		"negative many": func(c *Config) { c.MaxParallel = -1 },
	} {
		cfg := b.config(1)
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
