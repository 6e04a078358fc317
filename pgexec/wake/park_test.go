package wake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// own makes a run replica 1's, at epoch 1.
func (b *bundle) own(id runlog.RunID) {
	b.t.Helper()
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1, wake_job = null where run_id = $1`, id)
}

// logged is the log of replica 1's run as its owner knows it, with these tasks recorded. Its rows are made for it.
func (b *bundle) logged(id runlog.RunID, tasks ...int64) Logged {
	b.t.Helper()
	b.exec(`insert into pgexec.run_log (run_id, seq, record) values ($1, 1, '') on conflict do nothing`, id)
	b.own(id)
	return Logged{RunID: id, Owner: 1, Epoch: 1, Head: 1, Tasks: tasks}
}

// ownMany starts runs that are replica 1's and returns their ids.
func (b *bundle) ownMany(n int) []runlog.RunID {
	b.t.Helper()
	return b.ids(`with new as (insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 hour' from generate_series(1, $1) returning run_id)
		select run_id from new`, n)
}

func (b *bundle) ids(query string, args ...any) []runlog.RunID {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), query, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[runlog.RunID])
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
}

func parking(id runlog.RunID, seen int64) ParkParams {
	return ParkParams{RunID: id, Owner: 1, Epoch: 1, Inbox: seen, Reason: "waits"}
}

// waitOrPark does what an owner does with a run that only waits: it parks it, or
// looks until there is something for it. It returns whether the run was parked.
func (b *bundle) waitOrPark(ctx context.Context, id runlog.RunID, there func(Inbox) bool) (bool, error) {
	var seen int64
	for {
		parked, err := Park(ctx, b.pool, parking(id, seen))
		if parked || err != nil {
			return parked, err
		}
		in, err := ReadInbox(ctx, b.pool, Logged{RunID: id}, []string{"wait"})
		if err != nil {
			return false, err
		}
		if there(in) {
			return false, nil
		}
		seen = in.Seen
	}
}

// parkRace lets owners park runs while something reaches each of them.
type parkRace struct {
	// prepare makes the runs; each is replica 1's.
	prepare func(b *bundle, n int) []runlog.RunID
	// reach changes something for the run.
	reach func(ctx context.Context, b *bundle, id runlog.RunID) error
	// there tells that the owner has seen it.
	there func(Inbox) bool
	// lost is the condition of a run that stands still and has not been reached.
	lost string
}

// race runs n rounds and returns how many runs were parked and how many stayed hot.
func (r parkRace) race(b *bundle, n int) (parked, hot int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	ids := r.prepare(b, n)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1, wake_job = null where run_id = any ($1)`, ids)
	var wg sync.WaitGroup
	var nextID, parkedRuns atomic.Int64
	for range 4 {
		wg.Go(func() {
			for i := nextID.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = nextID.Add(1) - 1 {
				reached := make(chan error, 1)
				go func() { reached <- r.reach(ctx, b, ids[i]) }()
				p, err := b.waitOrPark(ctx, ids[i], r.there)
				if err = errors.Join(err, <-reached); err != nil {
					b.t.Errorf("run %s: %v", ids[i], err)
				}
				if p {
					parkedRuns.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if lost := get[int](b, `select count(*) from pgexec.runs r where run_id = any ($1) and `+r.lost, ids); lost > 0 {
		b.t.Errorf("%d of %d runs stand still", lost, n)
	}
	return parkedRuns.Load(), int64(n) - parkedRuns.Load()
}

func signalled(in Inbox) bool { return len(in.Signals) == 1 }

// G4, C11, C13: whether a signal comes before, while or after its run parks, the
// owner sees it or the run is woken; also when the signal's transaction stays open across the park.
func TestPark_NoSignalIsLost_C11(t *testing.T) {
	const lost = `r.status = 'parked' and r.wake_job is null`
	insert := func(ctx context.Context, db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}, id runlog.RunID,
	) error {
		var signal int64
		return db.QueryRow(ctx, `insert into pgexec.signals (run_id, name) values ($1, 'go') returning signal_id`, id).Scan(&signal)
	}
	for name, tc := range map[string]struct {
		rounds int
		reach  func(ctx context.Context, b *bundle, id runlog.RunID) error
	}{
		"committed at once": {3000, func(ctx context.Context, b *bundle, id runlog.RunID) error {
			return insert(ctx, b.pool, id)
		}},
		"held open": {1500, func(ctx context.Context, b *bundle, id runlog.RunID) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				if err := insert(ctx, tx, id); err != nil {
					return err
				}
				// Parked before, or not at all: the owner tries again right after the commit.
				parked, err := Park(ctx, b.pool, parking(id, 0))
				if parked {
					return errors.New("parked while a signal's transaction is open")
				}
				if errors.Is(err, runlog.ErrFenced) {
					return nil
				}
				return err
			})
		}},
		"by function": {1000, func(ctx context.Context, b *bundle, id runlog.RunID) error {
			_, err := b.pool.Exec(ctx, `select pgexec.signal($1, 'go', '1')`, id)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			parked, hot := parkRace{
				prepare: (*bundle).ownMany, reach: tc.reach, there: signalled, lost: lost,
			}.race(b, tc.rounds)
			t.Logf("%d parked first, %d saw the signal first", parked, hot)
			if parked == 0 || hot == 0 {
				t.Error("it was no race")
			}
			if n := get[int](b, `select count(*) from pgexec.signals where consumed_at is null`); n != tc.rounds {
				t.Errorf("%d signals of %d", n, tc.rounds)
			}
		})
	}
}

// A signal that was never committed keeps nobody hot and wakes nobody.
func TestPark_RolledBackSignalIsNone(t *testing.T) {
	b := setup(t)
	ids := b.ownMany(1)
	b.own(ids[0])
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select pgexec.signal($1, 'go')`, ids[0]); err != nil {
		t.Fatal(err)
	}
	b.park(parking(ids[0], 0), false)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.park(parking(ids[0], 0), true)
	if got := get[string](b, `select concat_ws(' ', status, owner is null, inbox, wake_job is null, run_at, reason) from pgexec.runs`); got != "parked t 0 t infinity waits" {
		t.Errorf("run is %s", got)
	}
}

func (b *bundle) park(p ParkParams, want bool) {
	b.t.Helper()
	parked, err := Park(b.t.Context(), b.pool, p)
	if err != nil || parked != want {
		b.t.Fatalf("parked %v, error %v, want %v", parked, err, want)
	}
}

// G4: requests, raised limits and ends of child runs are lost as little as signals.
func TestPark_NothingElseIsLost(t *testing.T) {
	call := func(statement string) func(context.Context, *bundle, runlog.RunID) error {
		return func(ctx context.Context, b *bundle, id runlog.RunID) error {
			_, err := b.pool.Exec(ctx, statement, id)
			return err
		}
	}
	withLimit := func(b *bundle, n int) []runlog.RunID {
		ids := b.ownMany(n)
		b.exec(`update pgexec.runs set max_tokens = 10`)
		return ids
	}
	for name, race := range map[string]parkRace{
		"cancel": {
			(*bundle).ownMany, call(`select pgexec.cancel($1)`),
			func(in Inbox) bool { return in.Wanted == "cancel" },
			`not (r.wanted = 'cancel' and (r.status = 'running' or r.wake_job is not null))`,
		},
		"pause": {
			(*bundle).ownMany, call(`select pgexec.pause($1)`),
			func(in Inbox) bool { return in.Wanted == "pause" },
			`not (r.status = 'paused' and r.wanted is null or r.status = 'running' and r.wanted = 'pause')`,
		},
		"resume": {
			withLimit, call(`select pgexec.resume($1, add_tokens => 5)`),
			func(in Inbox) bool { return in.Limits.MaxTokens == 15 },
			`not (r.max_tokens = 15 and r.inbox = 1)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			parked, hot := race.race(b, 700)
			t.Logf("%d parked first, %d saw it first", parked, hot)
			if parked == 0 || hot == 0 {
				t.Error("it was no race")
			}
		})
	}
}

// A run that is not the owner's is not parked, and says so.
func TestPark_OnlyTheOwners(t *testing.T) {
	b := setup(t)
	id := b.ownMany(1)[0]
	b.own(id)
	for _, p := range []ParkParams{
		{RunID: id, Owner: 2, Epoch: 1},
		{RunID: id, Owner: 1, Epoch: 2},
		{RunID: runlog.RunID{1}, Owner: 1, Epoch: 1},
	} {
		if parked, err := Park(t.Context(), b.pool, p); parked || !errors.Is(err, runlog.ErrFenced) {
			t.Errorf("%+v: parked %v, error %v", p, parked, err)
		}
	}
	b.park(parking(id, 0), true)
	if parked, err := Park(t.Context(), b.pool, parking(id, 0)); parked || !errors.Is(err, runlog.ErrFenced) {
		t.Errorf("parked twice: %v, error %v", parked, err)
	}
}

// An owner that knows what is wanted of its run does it, instead of parking.
func TestPark_NotWhileSomethingIsWanted(t *testing.T) {
	b := setup(t)
	id := b.ownMany(1)[0]
	b.own(id)
	b.exec(`select pgexec.pause($1)`, id)
	b.park(parking(id, 1), false)
	b.exec(`select pgexec.resume($1)`, id)
	b.park(parking(id, 2), true)
}

// A time that has come is no wait; one to come is a timer, in microseconds.
func TestPark_UntilATime(t *testing.T) {
	b := setup(t)
	id := b.ownMany(1)[0]
	b.own(id)
	p := parking(id, 0)
	p.DueUs = get[int64](b, `select (extract(epoch from now()) * 1000000)::bigint`)
	b.park(p, false)
	p.DueUs += 3_600_000_001
	p.Reason = "waits\x00 for \xff" // not text that a database takes
	b.park(p, true)
	got := get[string](b, `select concat_ws(' ', status, (extract(epoch from run_at) * 1000000)::bigint = $1, reason) from pgexec.runs`, p.DueUs)
	if got != "parked t waits\uFFFD for \uFFFD" {
		t.Errorf("run is %s", got)
	}
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	b.start(cfg)
	b.exec(`update pgexec.runs set run_at = clock_timestamp() + interval '300 ms'`)
	due := get[time.Time](b, `select run_at from pgexec.runs`)
	d := next(b, seen)
	if d.RunID != id || !d.claimed || d.at.Before(due) {
		t.Errorf("got %+v, due at %v", d, due)
	}
}
