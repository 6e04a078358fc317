package wake

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// An idle replica looks at a new run at once, not when it polls.
func TestWake_InsertIsDelivered(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 10)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	cfg.PollInterval = 10 * time.Second
	cfg.SweepInterval = time.Hour
	b.start(cfg)
	var late []time.Duration
	for range 40 {
		before := time.Now()
		id := b.insert()
		d := next(b, seen)
		late = append(late, time.Since(before))
		if d.RunID != id || !d.claimed {
			t.Fatalf("got %+v, want a claim of %s", d, id)
		}
	}
	slices.Sort(late)
	t.Logf("insert to end of claim: p50 %v, p95 %v, max %v", late[20], late[38], late[39])
	if late[20] > cfg.PollInterval/2 {
		t.Errorf("half of them took longer than %v: the poll would do as well", late[20])
	}
}

// G4: without any notification, polling delivers.
func TestWake_InsertIsDeliveredByPollingAlone(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	b.start(cfg)
	b.insert()
	next(b, seen)

	b.exec(`alter database ` + b.database() + ` set pgexec.notify_on_insert = off`)
	b.pool.Reset() // new sessions have the setting
	before := time.Now()
	id := b.insert()
	if d := next(b, seen); d.RunID != id {
		t.Fatalf("got run %s, want %s", d.RunID, id)
	}
	t.Logf("insert to end of claim by polling: %v", time.Since(before))
}

func (b *bundle) database() string {
	b.t.Helper()
	return get[string](b, `select quote_ident(current_database())`)
}

// G4, C12: the connection that listens dies, and all others of the replica; polling delivers meanwhile, and
// later notifications do again.
func TestWake_ListenerKilled(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	cfg.Pool = b.poolNamed("waker")
	cfg.PollInterval = 5 * time.Second
	cfg.SweepInterval = time.Hour
	b.start(cfg)
	for range 2 {
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'waker'`)
		id := b.insert()
		if d := next(b, seen); d.RunID != id {
			t.Fatalf("got run %s, want %s", d.RunID, id)
		}
	}
	fiveRuns := func() time.Duration {
		began := time.Now()
		for range 5 {
			b.insert()
			next(b, seen)
		}
		return time.Since(began)
	}
	// A poll every five seconds cannot be what delivers five runs in a row so fast.
	for deadline := time.Now().Add(limit); fiveRuns() > 4*time.Second; {
		if time.Now().After(deadline) {
			t.Fatal("notifications do not arrive any more")
		}
	}
}

// River completes a job that the claim's transaction has completed already: nothing changes.
func TestWake_CompletedByTheClaim(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	w := b.start(cfg)
	b.insert()
	d := next(b, seen)
	type row struct {
		State       string
		Attempt     int
		FinalizedAt time.Time
		Errors      int
	}
	read := func() (r row) {
		if err := b.pool.QueryRow(t.Context(), `select state::text, attempt, finalized_at, coalesce(array_length(errors, 1), 0)
			from pgexec.river_job where id = $1`, d.JobID).Scan(&r.State, &r.Attempt, &r.FinalizedAt, &r.Errors); err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := read()
	b.stop(w) // River has written down everything when it has stopped
	if after := read(); after != before || after.State != "completed" || after.Errors != 0 {
		t.Errorf("job was %+v, is %+v", before, after)
	}
}

// G4: the same wake delivered twice, to two replicas, is claimed once and harms nobody.
func TestWake_DeliveredTwice(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 10)
	for id := range runlog.ReplicaID(2) {
		cfg := b.config(id + 1)
		cfg.WakeFunc = b.claim(id+1, seen)
		b.start(cfg)
	}
	id := b.insert()
	first := next(b, seen)
	b.exec(`with again as (
			update pgexec.river_job set state = 'available', finalized_at = null where id = $1
		), another as (
			insert into pgexec.river_job (args, kind, max_attempts) values (jsonb_build_object('run_id', $2::uuid), 'pgexec_wake', 25)
		) select pg_notify('pgexec.river_insert', '{"queue":"default"}')`, first.JobID, id)
	for range 2 {
		if d := next(b, seen); d.claimed || d.RunID != id {
			t.Errorf("a repeated wake gave %+v", d)
		}
	}
	if epoch := get[int](b, `select epoch from pgexec.runs where run_id = $1`, id); epoch != 1 {
		t.Errorf("epoch is %d", epoch)
	}
	b.eventually("all jobs are completed", `select bool_and(state = 'completed') from pgexec.river_job`)
}

// A wake that ends with Again comes back soon, not with the next poll, and without using up attempts.
func TestWake_AgainComesBackSoon(t *testing.T) {
	b := setup(t)
	calls := make(chan time.Time, 100)
	var enough atomic.Bool
	cfg := b.config(1)
	claim := b.claim(1, nil)
	cfg.WakeFunc = func(ctx context.Context, w Wake) Outcome {
		calls <- time.Now()
		if !enough.Load() {
			return Again
		}
		return claim(ctx, w)
	}
	cfg.PollInterval = limit
	b.start(cfg)
	id := b.insert()
	// On a busy machine the look that is to find it may come too early, now and then.
	last := next(b, calls)
	for soon := 0; soon < 3; {
		at := next(b, calls)
		t.Logf("again after %v", at.Sub(last))
		if at.Sub(last) < cfg.PollInterval/4 {
			soon++
		}
		last = at
	}
	enough.Store(true)
	b.eventually("claimed", `select owner is not distinct from 1 from pgexec.runs where run_id = $1`, id)
	if attempt := get[int](b, `select attempt from pgexec.river_job`); attempt != 1 {
		t.Errorf("job is at attempt %d", attempt)
	}
}

// A panic in WakeFunc is neither the process's end nor the wake's.
func TestWake_PanicIsContained(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	claim := b.claim(1, seen)
	var once sync.Once
	cfg.WakeFunc = func(ctx context.Context, w Wake) Outcome {
		once.Do(func() { panic("boom") })
		return claim(ctx, w)
	}
	b.start(cfg)
	id := b.insert()
	if d := next(b, seen); d.RunID != id || !d.claimed {
		t.Errorf("got %+v", d)
	}
}

// A job with arguments nobody can read is put aside at once.
func TestWake_BadJobIsCancelled(t *testing.T) {
	b := setup(t)
	b.start(b.config(1))
	b.exec(`insert into pgexec.river_job (args, kind, max_attempts) values ('{"run_id":"seven"}', 'pgexec_wake', 25)`)
	b.eventually("cancelled", `select state = 'cancelled' from pgexec.river_job`)
}

// G4: every run of a large statement is delivered.
func TestWake_TenThousandRuns(t *testing.T) {
	b := setup(t)
	const runs = 10_000
	seen := make(chan delivery, runs)
	for id := range runlog.ReplicaID(2) {
		cfg := b.config(id + 1)
		cfg.WakeFunc = b.claim(id+1, seen)
		b.start(cfg)
	}
	before := time.Now()
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, $1)`, runs)
	inserted := time.Since(before)
	got := make(map[runlog.RunID]int, runs)
	for len(got) < runs {
		got[next(b, seen).RunID]++
	}
	t.Logf("inserted in %v, all claimed one by one %v later", inserted, time.Since(before)-inserted)
	if free := get[int](b, `select count(*) from pgexec.runs where owner is null or epoch <> 1`); free != 0 {
		t.Errorf("%d runs were not claimed exactly once", free)
	}
}

// River reckons with the database's clock, whatever this machine's says (C32).
func TestWake_RiverHasTheDatabasesClock(t *testing.T) {
	b := setup(t)
	w, err := New(b.config(1))
	if err != nil {
		t.Fatal(err)
	}
	w.clock.set(time.Now().Add(-10*time.Minute), time.Now())
	began := time.Now()
	if _, err := w.wakeDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	behind := time.Since(began) // at most
	before := get[time.Time](b, `select clock_timestamp()`)
	now := w.clock.Now()
	after := get[time.Time](b, `select clock_timestamp()`)
	if now.Before(before.Add(-behind)) || now.After(after) {
		t.Errorf("%v, the database has between %v and %v", now, before, after)
	}
	if w.clock.NowOrNil() != nil {
		t.Error("River is kept from using the database's clock in SQL")
	}
}
