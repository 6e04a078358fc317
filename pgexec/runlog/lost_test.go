package runlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// G1: the server has committed and the answer does not arrive. The append is found to be in the log; it is
// neither lost nor written twice.
func TestAppend_RecordedOnceWhenAcknowledgementIsLost_G1(t *testing.T) {
	// Before the batch's answer come those of the flush that holds it up, and of the look after it.
	lose := func(l *line) { l.answers.Store(3) }
	t.Run("one record", func(t *testing.T) { appendOverLine(t, 1, 1, lose) })
	t.Run("some records", func(t *testing.T) { appendOverLine(t, 1, 4, lose) })
	t.Run("some runs", func(t *testing.T) { appendOverLine(t, 5, 2, lose) })
}

// G1: the statement does not reach the server. It is sent again.
func TestAppend_RecordedOnceWhenRequestIsLost_G1(t *testing.T) {
	lose := func(l *line) { l.requests.Store(2) }
	t.Run("one record", func(t *testing.T) { appendOverLine(t, 1, 1, lose) })
	t.Run("some records", func(t *testing.T) { appendOverLine(t, 1, 4, lose) })
	t.Run("some runs", func(t *testing.T) { appendOverLine(t, 5, 2, lose) })
}

func appendOverLine(t *testing.T, runs, records int, lose func(*line)) {
	b := setup(t)
	var l line
	w, gate := b.gatedWriter(func(cfg *runlog.WriterConfig) {
		cfg.Pool, cfg.Flushers = l.pool(b, nil), 1
	})
	var ids []runlog.RunID
	var all []*appending
	wants := make([][][]byte, runs)
	for i := range runs {
		id := b.newRun()
		tail := b.open(w, id, 1)
		wants[i] = [][]byte{claimRecord(t, 1, 1)}
		for k := range records {
			wants[i] = append(wants[i], node(t, fmt.Sprintf("node-%d", k), 1))
		}
		ids = append(ids, id)
		all = append(all, b.appendAll(tail, wants[i][1:]...))
	}
	lose(&l)
	gate()
	for i, a := range all {
		a.wantSeqs(2)
		b.wantLog(ids[i], wants[i]...)
	}
	if l.answers.Load() > 0 || l.requests.Load() > 0 {
		t.Error("the line was not cut")
	}
}

// G1: the backend is ended while it executes the append.
func TestAppend_RecordedOnceWhenBackendIsTerminated_G1(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			id := b.newRun()
			tail := b.open(w, id, 1)
			tx := b.begin()
			b.claim(tx, id, 2)
			want := [][]byte{claimRecord(t, 1, 1)}
			for i := range n {
				want = append(want, node(t, fmt.Sprintf("node-%d", i), 1))
			}
			a := b.appendAll(tail, want[1:]...)
			for _, pid := range b.blockedOn(tx, 1) {
				b.exec(`select pg_terminate_backend($1)`, pid)
			}
			// It is sent again, and waits again.
			b.blockedOn(tx, 1)
			if err := tx.Rollback(b.ctx); err != nil {
				t.Fatal(err)
			}
			a.wantSeqs(2)
			b.wantLog(id, want...)
		})
	}
}

// G1, G3: the answer is lost, and the run is claimed before the writer looks. The record is in the log, under the
// claim, and confirmed; the next one is fenced.
func TestAppend_ConfirmedBelowALaterClaim_G1(t *testing.T) {
	b := setup(t)
	var l line
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.Pool, cfg.Flushers = l.pool(b, nil), 1
	})
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	dials := l.dials.Load()
	l.down.Store(true)
	l.answers.Store(1)
	a := b.appendAll(tail, node(t, "b", 1))
	b.until(func() bool { return l.dials.Load() > dials })
	b.claim(b.pool, id, 2)
	l.down.Store(false)

	a.wantSeqs(3)
	b.appendAll(tail, node(t, "late", 1)).wantError(isFenced)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1), claimRecord(t, 2, 2))
}

// G3: the request is lost, and the run is claimed before it is sent again.
func TestAppend_FencedWhenClaimedBeforeItIsSentAgain_G3(t *testing.T) {
	b := setup(t)
	var l line
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.Pool, cfg.Flushers = l.pool(b, nil), 1
	})
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	dials := l.dials.Load()
	l.down.Store(true)
	l.requests.Store(1)
	a := b.appendAll(tail, node(t, "b", 1), node(t, "c", 1))
	b.until(func() bool { return l.dials.Load() > dials })
	b.claim(b.pool, id, 2)
	l.down.Store(false)

	a.wantError(isFenced)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), claimRecord(t, 2, 2))
}

// C27: the database is away. The flush is tried again, ever more slowly, until the writer is aborted.
func TestAppend_RetriesBackOffAndEndWithAbort_C27(t *testing.T) {
	b := setup(t)
	var l line
	var tries countingHandler
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.Logger = slog.New(&tries)
		cfg.Pool = l.pool(b, nil)
	})
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	l.down.Store(true)
	l.requests.Store(1)
	start := time.Now()
	a := b.appendAll(tail, node(t, "b", 1))
	b.until(func() bool { return tries.Load() >= 7 })
	// After the flush a wait of at least 5 ms, and between six looks of 5, 10, 20, 40 and 80.
	if took := time.Since(start); took < 160*time.Millisecond {
		t.Errorf("%d tries in %v", tries.Load(), took)
	}
	w.Abort()
	a.wantError(isClosed)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1))
}

// countingHandler counts what is logged.
type countingHandler struct {
	slog.Handler
	atomic.Int64
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *countingHandler) Handle(context.Context, slog.Record) error {
	h.Add(1)
	return nil
}

// The database comes back: what was queued meanwhile goes out by itself.
func TestAppend_GoesOnWhenTheDatabaseIsBack_C10(t *testing.T) {
	b := setup(t)
	var l line
	w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Pool = l.pool(b, nil) })
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	before := l.dials.Load()
	l.down.Store(true)
	l.requests.Store(1)
	first := b.appendAll(tail, node(t, "b", 1))
	b.until(func() bool { return l.dials.Load() >= before+2 })
	second := b.appendAll(tail, node(t, "c", 1), node(t, "d", 1))
	l.down.Store(false)
	first.wantSeqs(3)
	second.wantSeqs(4)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1), node(t, "c", 1), node(t, "d", 1))
}
