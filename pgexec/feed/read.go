package feed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// readTimeout bounds one read.
const readTimeout = 30 * time.Second

// batch is what one read found of one run. err is for that run alone.
type batch struct {
	after   runlog.Seq
	entries []Entry
	bytes   int
	// full: the read may have ended before the log does.
	full bool
	err  error
}

// check decodes what was read, as far as it is the run's log without a gap.
func (b *batch) check(id runlog.RunID) {
	// SQL promises no order over several runs.
	bySeq := func(x, y Entry) int { return cmp.Compare(x.Seq, y.Seq) }
	if !slices.IsSortedFunc(b.entries, bySeq) {
		slices.SortFunc(b.entries, bySeq)
	}
	for i := range b.entries {
		if b.err = b.entries[i].decode(id, b.after+runlog.Seq(i)+1); b.err != nil {
			b.entries = b.entries[:i]
			return
		}
	}
}

// decode fails if the entry is not a record, or not the one at want.
func (e *Entry) decode(id runlog.RunID, want runlog.Seq) (err error) {
	if e.Seq != want {
		return &runlog.GapError{RunID: id, Want: want, Got: e.Seq}
	}
	if e.Record, err = runlog.Decode(e.Raw); err != nil {
		return &runlog.DecodeError{RunID: id, Seq: e.Seq, Err: err}
	}
	return nil
}

// read reads the next records of several runs in one statement.
func (l *Listener) read(ctx context.Context, batches map[runlog.RunID]*batch) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ids := make([]string, 0, len(batches))
	after := make([]int64, 0, len(batches))
	for id, b := range batches {
		ids = append(ids, id.String())
		after = append(after, int64(b.after))
	}
	most := max(readBytes/max(len(ids), 1), 1)
	rows, err := l.pool.Query(ctx, sql.FeedRead, ids, after, entriesPerRead, most)
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	var (
		id  runlog.RunID
		seq int64
		raw []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &seq, &raw}, func() error {
		b := batches[id]
		b.entries = append(b.entries, Entry{Seq: runlog.Seq(seq), Raw: raw})
		b.bytes += len(raw)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	// Only now, with the connection given back.
	for id, b := range batches {
		b.full = len(b.entries) >= entriesPerRead || b.bytes >= most
		b.check(id)
	}
	return nil
}

// readOne reads the next records of a run; full says that there may be more.
func (l *Listener) readOne(ctx context.Context, id runlog.RunID, after runlog.Seq) (entries []Entry, full bool, err error) {
	b := &batch{after: after}
	if err := l.read(ctx, map[runlog.RunID]*batch{id: b}); err != nil {
		return nil, false, err
	}
	if len(b.entries) == 0 && b.err != nil {
		return nil, false, b.err
	}
	// What precedes a fault is good; the next read begins with the fault.
	return b.entries, b.full, nil
}

// readForAll reads the logs of live runs that have grown, many in one
// statement. The first of them after a quiet time is read at once; the more
// there are, the longer is the pause before the next read.
func (l *Listener) readForAll(ctx context.Context) {
	var failures int
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hub.kick:
		}
		runs, err := l.readDirty(ctx)
		pause := min(l.timing.read+time.Duration(runs)*time.Millisecond, l.timing.readMost)
		if err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			if failures++; failures == 1 {
				l.logger.Warn("cannot read logs for watchers, trying on", "error", err)
			}
			pause = backoff(failures)
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// readDirty returns the number of runs it has read.
func (l *Listener) readDirty(ctx context.Context) (int, error) {
	runs, batches := l.hub.takeDirty()
	if len(runs) == 0 {
		return 0, nil
	}
	if err := l.read(ctx, batches); err != nil {
		l.hub.putBack(runs)
		return 0, err
	}
	l.hub.deliver(runs, batches)
	return len(runs), nil
}

// takeDirty takes some of the dirty runs.
func (h *hub) takeDirty() ([]*watched, map[runlog.RunID]*batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := make([]*watched, 0, min(len(h.dirty), runsPerRead))
	batches := make(map[runlog.RunID]*batch, cap(runs))
	for w := range h.dirty {
		if len(runs) == runsPerRead {
			break
		}
		delete(h.dirty, w)
		runs = append(runs, w)
		batches[w.id] = &batch{after: w.read}
	}
	h.kickIfDirty()
	return runs, batches
}

func (h *hub) kickIfDirty() {
	if len(h.dirty) == 0 {
		return
	}
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *hub) putBack(runs []*watched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range runs {
		if w.refs > 0 {
			h.markDirty(w)
		}
	}
}

// deliver shares what was read with the watchers.
func (h *hub) deliver(runs []*watched, batches map[runlog.RunID]*batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range runs {
		b := batches[w.id]
		if b.after != w.read || w.refs == 0 {
			continue // the log has shrunk meanwhile, or nobody is left
		}
		if len(b.entries) == 0 && b.err == nil {
			continue
		}
		w.append(b.entries)
		w.err = b.err
		w.broadcast()
		if b.full && b.err == nil {
			h.markDirty(w)
		}
	}
}

// append adds entries to the recent ones and drops the oldest beyond the
// bounds. It writes behind what watchers may be reading, never over it.
func (w *watched) append(entries []Entry) {
	w.recent = append(w.recent, entries...)
	for _, e := range entries {
		w.read = e.Seq
		w.bytes += len(e.Raw)
	}
	drop := 0
	for drop < len(w.recent)-1 && (len(w.recent)-drop > keepEntries || w.bytes > keepBytes) {
		w.bytes -= len(w.recent[drop].Raw)
		drop++
	}
	w.recent = w.recent[drop:]
}
