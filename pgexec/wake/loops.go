package wake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// dueBatch bounds the runs one timer statement wakes.
	dueBatch = 500
	// sweepPage bounds the jobs one sweep statement looks at, sweepPages the
	// statements of one sweep: the next one goes on from there.
	sweepPage, sweepPages = 1000, 10
	// statementTimeout bounds each statement of the loops.
	statementTimeout = 10 * time.Second
)

// runTimers wakes runs at their run_at. Between two looks it sleeps until the
// next run is due, at most TimerInterval, since new runs are not announced.
func (w *Waker) runTimers(ctx context.Context) {
	out := outage{logger: w.cfg.Logger, task: "wake due runs"}
	for delay := time.Duration(0); sleep(ctx, delay); {
		next, err := w.wakeDue(ctx)
		out.report(ctx, err)
		delay = next
		if err != nil {
			delay = jittered(w.cfg.TimerInterval, 2)
		}
	}
}

// dueRow says how many runs were woken, when the next one is due, and what the database's clock shows.
type dueRow struct {
	Woken  int
	Queues []string
	NextUs *int64
	At     time.Time
}

// wakeDue wakes runs that are due and returns when to look again.
func (w *Waker) wakeDue(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	seen := time.Now()
	due, err := one[dueRow](ctx, w.cfg.Pool, sql.WakeDue, dueBatch, w.cfg.TimerInterval.Microseconds())
	if err != nil {
		return 0, fmt.Errorf("wake due runs: %w", err)
	}
	w.cfg.WokeFunc(due.Queues)
	// Behind by the answer's way at most, never ahead: no job rests too long.
	w.clock.set(due.At, time.Now())
	switch {
	case due.Woken == dueBatch:
		return 0, nil
	case due.NextUs == nil:
		return w.cfg.TimerInterval, nil
	default:
		// A little later than due: a look that comes too early is wasted.
		return time.Duration(*due.NextUs)*time.Microsecond + time.Millisecond - time.Since(seen), nil
	}
}

// runSweeps finds, at once and then every SweepInterval, runs that nothing else would wake.
func (w *Waker) runSweeps(ctx context.Context) {
	out := outage{logger: w.cfg.Logger, task: "sweep"}
	var after int64
	for delay := time.Duration(0); sleep(ctx, delay); delay = jittered(w.cfg.SweepInterval, 5) {
		err := w.wakeWaiting(ctx)
		if err == nil {
			after, err = w.sweep(ctx, after)
		}
		out.report(ctx, err)
	}
}

// wakeWaiting wakes runs of our queues that wait for a kind this replica has, or programs outside do. In another queue
// the wake would go to replicas that have none of them.
func (w *Waker) wakeWaiting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	woke, err := one[wokeRow](ctx, w.cfg.Pool, sql.WakeWaiting, w.cfg.Kinds, dueBatch, w.cfg.Queues)
	if err != nil {
		return fmt.Errorf("wake waiting runs: %w", err)
	}
	w.cfg.WokeFunc(woke.Queues)
	return nil
}

// wokeRow says how many runs were woken, and in which queues.
type wokeRow struct {
	Woken  int
	Queues []string
}

// sweep replaces wakes that cannot be delivered any more, among those with a
// job id above after. It returns where the next sweep goes on.
func (w *Waker) sweep(ctx context.Context, after int64) (int64, error) {
	for range sweepPages {
		swept, err := w.sweepOnce(ctx, after)
		if err != nil {
			return after, err
		}
		if swept.Woken > 0 {
			w.cfg.Logger.Warn("woke runs that had lost their wake", "runs", swept.Woken)
		}
		if swept.LookedAt < sweepPage {
			return 0, nil
		}
		after = swept.LastJob
	}
	return after, nil
}

// sweepRow says how far a sweep came.
type sweepRow struct {
	LastJob         int64
	LookedAt, Woken int
	Queues          []string
}

func (w *Waker) sweepOnce(ctx context.Context, after int64) (sweepRow, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	swept, err := one[sweepRow](ctx, w.cfg.Pool, sql.WakeSweep,
		after, sweepPage, clientID(w.cfg.ReplicaID), w.cfg.LostAfter.Microseconds(), w.current.list())
	if err != nil {
		return sweepRow{}, fmt.Errorf("sweep wakes: %w", err)
	}
	w.cfg.WokeFunc(swept.Queues)
	return swept, nil
}

// completerDelay is how long River may take to write down that a job rests.
const completerDelay = 260 * time.Millisecond

// runNudges has rested wakes fetched when their rest is over: River itself
// would find them only by its poll.
func (w *Waker) runNudges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.rested:
		}
		if !sleep(ctx, w.cfg.AgainAfter+completerDelay) {
			return
		}
		w.nudge(ctx)
	}
}

// nudge makes all River clients of our queues fetch. It is a hint: they poll as well.
func (w *Waker) nudge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := w.cfg.Pool.Exec(ctx, sql.WakeNudge, w.cfg.Queues); err != nil {
		w.cfg.Logger.Debug("nudge queues", "error", err)
	}
}

// runHousekeeping makes partitions ahead of time and removes what is left of runs that have ended.
func (w *Waker) runHousekeeping(ctx context.Context) {
	out := outage{logger: w.cfg.Logger, task: "keep house"}
	for delay := time.Duration(0); sleep(ctx, delay); delay = jittered(w.cfg.HousekeepingInterval, 5) {
		out.report(ctx, errors.Join(w.ensurePartitions(ctx), w.removeTasks(ctx), w.removeUsage(ctx)))
	}
}

func (w *Waker) removeTasks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := runlog.QueryPlanned[struct{}](ctx, w.cfg.Pool, sql.WakeQuietly, sql.WakeTasks); err != nil {
		return fmt.Errorf("remove tasks of runs that have ended: %w", err)
	}
	return nil
}

func (w *Waker) removeUsage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := w.cfg.Pool.Exec(ctx, sql.WakeUsage); err != nil {
		return fmt.Errorf("remove what runs had spent: %w", err)
	}
	return nil
}

func (w *Waker) ensurePartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := w.cfg.Pool.Exec(ctx, sql.WakeHousekeeping); err != nil {
		return fmt.Errorf("make partitions: %w", err)
	}
	return nil
}
