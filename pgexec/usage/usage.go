// Package usage shows what the runs in memory have spent so far. Their logs
// say it exactly, and their rows in pgexec.runs since they last ended, paused
// or parked; in between, whoever reads gets what a replica shows of its hot
// runs in pgexec.run_usage: all that have spent something in the last
// seconds, in one transaction that waits for no flush.
//
// # Guarantees
//
//   - What a hot run has spent is shown within seconds, and its row in pgexec.runs is not touched:
//     TestUsage_HotRunShowsWhatItSpends.
//   - Nothing is sent while nothing is spent, and however many runs spend, one transaction an
//     interval is: TestReporter_OneTransactionForAll.
//   - A former owner changes nothing of what a later one shows: TestReporter_FormerOwnerIsFenced.
//   - After a takeover, a park and an end no figure is less than it was, and none is counted
//     twice: TestUsage_NeverLessAfterATakeover.
//   - Nothing is left of runs that wait or have ended: TestReporter_NothingIsLeftOfRunsThatRest.
//
// The package is internal to pgexec: no compatibility is promised.
package usage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// interval is the time between two reports.
	interval = 2 * time.Second
	// reportTimeout bounds one report, lastTimeout the one of a replica that stops.
	reportTimeout, lastTimeout = 10 * time.Second, 2 * time.Second
)

// Reporter shows what the hot runs of one replica session have spent.
type Reporter struct {
	pool   *pgxpool.Pool
	id     runlog.ReplicaID
	logger *slog.Logger
	every  time.Duration

	stop    context.CancelFunc
	done    chan struct{}
	failing bool // the last report did not get through

	mu sync.Mutex
	// changed have spent something that is not shown yet; settled are shown, and need not be any more.
	changed map[*Meter]struct{}
	settled []*Meter
}

// New returns a reporter that [Reporter.Start] starts.
func New(pool *pgxpool.Pool, id runlog.ReplicaID, logger *slog.Logger) *Reporter {
	return &Reporter{pool: pool, id: id, logger: logger, every: interval, changed: make(map[*Meter]struct{})}
}

// Meter is what one hot run has spent. Its methods never block.
type Meter struct {
	r     *Reporter
	runID runlog.RunID
	epoch runlog.Epoch
	// Under the reporter's lock.
	spent graph.Usage
	shown bool // perhaps there is a row
	rests bool // it has settled
}

// Open returns the meter of a run that was claimed at that epoch.
func (r *Reporter) Open(id runlog.RunID, epoch runlog.Epoch) *Meter {
	return &Meter{r: r, runID: id, epoch: epoch}
}

// Set says what the run has spent, as of a record that is committed.
func (m *Meter) Set(spent graph.Usage) {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	if m.spent != spent {
		m.spent = spent
		m.r.changed[m] = struct{}{}
	}
}

// Settle says that the run's own row has what it has spent: it was parked or
// paused, or has ended.
func (m *Meter) Settle() {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.rests = true
	delete(m.r.changed, m)
	if m.shown {
		m.r.settled = append(m.r.settled, m)
	}
}

// Start begins to report. Either [Reporter.Close] or [Reporter.Abort] ends that.
func (r *Reporter) Start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.done = stop, make(chan struct{})
	go func() {
		defer close(r.done)
		tick := time.NewTicker(r.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.report(ctx, reportTimeout)
			}
		}
	}()
}

// Abort ends the reports of a replica that is not to be trusted any more.
func (r *Reporter) Abort() {
	r.stop()
	<-r.done
}

// Close reports what the runs had spent when they were given back, and ends.
func (r *Reporter) Close() {
	r.Abort()
	r.report(context.Background(), lastTimeout)
}

// report shows what has changed since the last one. What cannot be shown now is shown with the next one.
func (r *Reporter) report(ctx context.Context, limit time.Duration) {
	changed, settled := r.take()
	if len(changed.runs)+len(settled) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(sql.UsageSetup)
	if len(settled) > 0 {
		ids, epochs := make([]string, len(settled)), make([]int64, len(settled))
		for i, m := range settled {
			ids[i], epochs[i] = m.runID.String(), int64(m.epoch)
		}
		batch.Queue(sql.UsageSettle, ids, epochs)
	}
	if len(changed.runs) > 0 {
		batch.Queue(sql.UsageShow, changed.args(r.id)...)
	}
	err := r.pool.SendBatch(limited, &batch).Close()
	if err != nil {
		r.putBack(changed.runs, settled)
		if !r.failing && ctx.Err() == nil {
			r.logger.Warn("show what runs have spent, trying again", "runs", len(changed.runs), "error", err)
		}
	}
	r.failing = err != nil
}

// figures are what some runs had spent when they were taken.
type figures struct {
	runs                                   []*Meter
	ids                                    []string // which any mode of the pool's connections can send
	epochs                                 []int64
	inputs, outputs, costs, unpriced, done []int64
}

func (f *figures) args(id runlog.ReplicaID) []any {
	return []any{int32(id), f.ids, f.epochs, f.inputs, f.outputs, f.costs, f.unpriced, f.done}
}

// take empties the lists. What is taken counts as shown, since nobody knows what becomes of a statement without an answer.
func (r *Reporter) take() (changed figures, settled []*Meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m := range r.changed {
		m.shown = true
		changed.runs = append(changed.runs, m)
		changed.ids, changed.epochs = append(changed.ids, m.runID.String()), append(changed.epochs, int64(m.epoch))
		changed.inputs, changed.outputs = append(changed.inputs, m.spent.InputTokens), append(changed.outputs, m.spent.OutputTokens)
		changed.costs, changed.unpriced = append(changed.costs, m.spent.CostNanoUSD), append(changed.unpriced, m.spent.Unpriced)
		changed.done = append(changed.done, m.spent.Nodes)
	}
	clear(r.changed)
	settled, r.settled = r.settled, nil
	return changed, settled
}

// putBack has runs reported again, unless they have settled since.
func (r *Reporter) putBack(changed, settled []*Meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range changed {
		if !m.rests {
			r.changed[m] = struct{}{}
		}
	}
	r.settled = append(settled, r.settled...)
}
