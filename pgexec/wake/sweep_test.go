package wake

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// sweeper is a waker that is not started: its sweeps are called one by one.
func (b *bundle) sweeper(kinds ...string) *Waker {
	b.t.Helper()
	b.replica(1)
	cfg := b.config(1)
	cfg.Kinds = kinds
	w, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *bundle) sweepOnce(w *Waker) {
	b.t.Helper()
	if err := w.wakeWaiting(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if _, err := w.sweep(b.t.Context(), 0); err != nil {
		b.t.Fatal(err)
	}
}

// oneWake fails unless the run has exactly one job that can be delivered, its own.
func (b *bundle) oneWake(id runlog.RunID) {
	b.t.Helper()
	if n := get[int](b, `select count(*) from pgexec.river_job j where args ->> 'run_id' = $1::uuid::text
		and state = 'available'`, id); n != 1 {
		b.t.Errorf("%d deliverable jobs, want one", n)
	}
	if !get[bool](b, `select exists (select from pgexec.runs r join pgexec.river_job j on j.id = r.wake_job
		where r.run_id = $1 and j.state = 'available')`, id) {
		b.t.Error("the run does not know its job")
	}
}

// unchanged fails if the run's wake is not the one it was before.
func (b *bundle) unchanged(id runlog.RunID, job *int64) {
	b.t.Helper()
	if now := get[*int64](b, `select wake_job from pgexec.runs where run_id = $1`, id); (now == nil) != (job == nil) || now != nil && *now != *job {
		b.t.Errorf("wake changed from %v to %v", job, now)
	}
}

// G4: whatever has become of a run's job, the sweep makes one wake, and a second sweep none.
func TestSweep_LostWakes(t *testing.T) {
	for _, tc := range []struct{ name, sql string }{
		{"deleted job", `delete from pgexec.river_job`},
		{"completed job", `update pgexec.river_job set state = 'completed', finalized_at = now()`},
		{"cancelled job", `update pgexec.river_job set state = 'cancelled', finalized_at = now()`},
		{"discarded job", `update pgexec.river_job set state = 'discarded', finalized_at = now()`},
		{"job of a dead replica", `update pgexec.river_job set state = 'running', attempt = 1,
			attempted_by = array['pgexec-1', 'pgexec-77'], attempted_at = now()`},
		{"job fetched here that never arrived", `update pgexec.river_job set state = 'running', attempt = 1,
			attempted_by = array['pgexec-1'], attempted_at = now() - interval '1 minute'`},
		{"deleted job of a parked run", `with d as (delete from pgexec.river_job) update pgexec.runs set status = 'parked'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := setup(t)
			w := b.sweeper()
			id := b.insert()
			b.exec(tc.sql)
			b.sweepOnce(w)
			b.oneWake(id)
			job := get[*int64](b, `select wake_job from pgexec.runs`)
			b.sweepOnce(w)
			b.unchanged(id, job)
			b.oneWake(id)
			if n := get[int](b, `select count(*) from pgexec.river_job where state = 'running'`); n != 0 {
				t.Errorf("%d jobs still count as running", n)
			}
		})
	}
}

// The sweep leaves alone what is in order.
func TestSweep_LeavesTheRestAlone(t *testing.T) {
	for _, tc := range []struct{ name, sql string }{
		{"available job", `select`},
		{"snoozed job", `update pgexec.river_job set scheduled_at = now() + interval '1 hour'`},
		{"scheduled job", `update pgexec.river_job set state = 'scheduled', scheduled_at = now() + interval '1 hour'`},
		{"job of a live replica", `update pgexec.river_job set state = 'running', attempted_by = array['pgexec-77', 'pgexec-2'],
			attempted_at = now() - interval '1 minute'`},
		{"job just fetched here", `update pgexec.river_job set state = 'running', attempted_by = array['pgexec-1'], attempted_at = now()`},
		{"job of another program", `update pgexec.river_job set state = 'running', attempted_by = array['theirs'], attempted_at = now()`},
		{"owned run", `with d as (delete from pgexec.river_job) update pgexec.runs set status = 'running', owner = 2`},
		{"paused run", `with d as (delete from pgexec.river_job) update pgexec.runs set status = 'paused'`},
		{"finished run", `with d as (delete from pgexec.river_job) update pgexec.runs set status = 'succeeded'`},
		{"parked run without a wake", `with d as (delete from pgexec.river_job) update pgexec.runs set status = 'parked', wake_job = null`},
		{"run that is not due", `with d as (delete from pgexec.river_job) update pgexec.runs set wake_job = null, run_at = now() + interval '1 hour'`},
		{"run that waits for another kind", `with d as (delete from pgexec.river_job) update pgexec.runs set wake_job = null, waiting_kinds = '{other}'`},
		{"run of a queue that is not served here", `with d as (delete from pgexec.river_job) update pgexec.runs set wake_job = null, waiting_kinds = '{mine}', queue = 'theirs'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := setup(t)
			w := b.sweeper("mine")
			b.replica(2)
			id := b.insert()
			b.exec(tc.sql)
			job := get[*int64](b, `select wake_job from pgexec.runs`)
			b.sweepOnce(w)
			b.unchanged(id, job)
		})
	}
}

// A job that this process is looking at is not lost, however long it takes.
func TestSweep_JobInProgressHereIsNotLost(t *testing.T) {
	b := setup(t)
	w := b.sweeper()
	id := b.insert()
	b.exec(`update pgexec.river_job set state = 'running', attempted_by = array['pgexec-1'], attempted_at = now() - interval '1 minute'`)
	job := get[*int64](b, `select wake_job from pgexec.runs`)
	w.current.add(*job)
	b.sweepOnce(w)
	b.unchanged(id, job)
	w.current.remove(*job)
	b.sweepOnce(w)
	b.oneWake(id)
}

// A sweep looks at a bounded number of jobs and goes on where it stopped, round and round.
func TestSweep_GoesRound(t *testing.T) {
	b := setup(t)
	w := b.sweeper()
	const runs = sweepPage*sweepPages + 200
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, $1)`, runs)
	b.exec(`delete from pgexec.river_job where id = (select max(wake_job) from pgexec.runs)`)
	after, err := w.sweep(t.Context(), 0)
	if err != nil || after == 0 {
		t.Fatalf("first part ends at %d, %v", after, err)
	}
	if after, err = w.sweep(t.Context(), after); err != nil || after != 0 {
		t.Fatalf("second part ends at %d, %v", after, err)
	}
	if n := get[int](b, `select count(*) from pgexec.runs r join pgexec.river_job j on j.id = r.wake_job`); n != runs {
		t.Errorf("%d runs have their wake, want %d", n, runs)
	}
}

// A claim that holds the run's row wins over a sweep that took its job for lost.
func TestSweep_ClaimInProgress(t *testing.T) {
	b := setup(t)
	w := b.sweeper()
	id := b.insert()
	b.exec(`delete from pgexec.river_job`)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `update pgexec.runs set owner = 2, status = 'running', wake_job = null`)
		b.sweepOnce(w)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.unchanged(id, nil)
}

// G4: a replica that starts delivers runs whose wake is lost, and those that wait for a kind it has.
func TestSweep_AtStart(t *testing.T) {
	b := setup(t)
	lost, waiting := b.insert(), b.insert()
	b.exec(`delete from pgexec.river_job`)
	b.exec(`update pgexec.runs set wake_job = null, waiting_kinds = '{other,mine}' where run_id = $1`, waiting)
	seen := make(chan delivery, 2)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	cfg.Kinds = []string{"mine"}
	cfg.SweepInterval = time.Hour
	b.start(cfg)
	got := map[runlog.RunID]bool{next(b, seen).RunID: true, next(b, seen).RunID: true}
	if !got[lost] || !got[waiting] {
		t.Errorf("delivered %v", got)
	}
}

// G4: a job of a dead replica is replaced by whoever lives.
func TestSweep_JobOfDeadReplica(t *testing.T) {
	b := setup(t)
	hold := newGate()
	dead := b.config(7)
	dead.WakeFunc = func(ctx context.Context, _ Wake) Outcome {
		hold.entered <- struct{}{}
		<-hold.open
		return Done
	}
	b.start(dead)
	b.t.Cleanup(hold.release)
	id := b.insert()
	next(b, hold.entered)

	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	cfg.SweepInterval = 50 * time.Millisecond
	b.start(cfg)
	b.exec(`delete from pgexec.replicas where replica_id = 7`)
	if d := next(b, seen); d.RunID != id || !d.claimed {
		t.Errorf("got %+v", d)
	}
	hold.release()
}
