package wake

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// wakeArgs are the arguments of a wake job, as the SQL that inserts it writes them.
type wakeArgs struct {
	RunID string `json:"run_id"`
}

// Kind is the kind of a wake job.
func (wakeArgs) Kind() string { return "pgexec_wake" }

// wakeWorker is what River calls for a wake job. It never fails a job, since
// a wake that is given up is a run that stands still.
type wakeWorker struct {
	river.WorkerDefaults[wakeArgs]
	waker *Waker
}

// Work hands one wake to WakeFunc.
func (wk *wakeWorker) Work(ctx context.Context, job *river.Job[wakeArgs]) error {
	w := wk.waker
	id, err := runlog.ParseRunID(job.Args.RunID)
	if err != nil {
		return river.JobCancel(fmt.Errorf("parse wake job %d: %w", job.ID, err))
	}
	w.current.add(job.ID)
	defer w.current.remove(job.ID)
	if w.look(ctx, Wake{RunID: id, JobID: job.ID}) == Done {
		// River completes the job once more, which changes nothing when the
		// claim has done so: it only touches jobs in state running.
		return nil
	}
	return river.JobSnooze(w.rest())
}

// look calls WakeFunc. A panic costs this look, not the wake.
func (w *Waker) look(ctx context.Context, wake Wake) (outcome Outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.cfg.Logger.Error("wake panicked", "run_id", wake.RunID, "error", p, "stack", string(debug.Stack()))
			outcome = Again
		}
	}()
	return w.cfg.WakeFunc(ctx, wake)
}

// rest is how long a wake that ended with Again waits. While draining it does
// not wait here: other replicas take it.
func (w *Waker) rest() time.Duration {
	if w.draining.Load() {
		w.handed.Store(true)
		return 0
	}
	select {
	case w.rested <- struct{}{}:
	default:
	}
	return jittered(w.cfg.AgainAfter, 2)
}

// jittered adds up to an nth of d.
func jittered(d time.Duration, n int64) time.Duration {
	return d + rand.N(max(d/time.Duration(n), 1))
}

// inProgress is the set of wake jobs this process is looking at.
type inProgress struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

func (p *inProgress) add(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids == nil {
		p.ids = make(map[int64]struct{})
	}
	p.ids[id] = struct{}{}
}

func (p *inProgress) remove(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ids, id)
}

func (p *inProgress) list() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]int64, 0, len(p.ids))
	for id := range p.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// dbClock is the database's clock as estimated here, so that River's times
// are the database's also when this machine's clock is wrong.
type dbClock struct{ offset atomic.Int64 }

// set notes that the database's clock showed at when ours showed seen.
func (c *dbClock) set(at, seen time.Time) { c.offset.Store(int64(at.Sub(seen))) }

// Now returns the database's time.
func (c *dbClock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// NowOrNil returns nil: where River can leave the time to the database, it does.
func (c *dbClock) NowOrNil() *time.Time { return nil }

// warnOnly drops records below warning: River reports every start and stop of
// its parts, of which only troubles are worth a line in a replica's log.
type warnOnly struct{ slog.Handler }

// Enabled reports whether the level is at least warning and wanted at all.
func (h warnOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the filter.
func (h warnOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the filter.
func (h warnOnly) WithGroup(name string) slog.Handler { return warnOnly{h.Handler.WithGroup(name)} }
