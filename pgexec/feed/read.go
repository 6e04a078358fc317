package feed

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// readTimeout bounds one read.
const readTimeout = 30 * time.Second

// DecodeError says that a record is not one that this build can read.
type DecodeError struct {
	RunID runlog.RunID
	Seq   runlog.Seq
	Err   error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode record %d of run %s: %v", e.Seq, e.RunID, e.Err)
}

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// batch is what one read found of one run. err is for that run alone.
type batch struct {
	after   runlog.Seq
	entries []Entry
	err     error
}

// add appends a record if it is the next one.
func (b *batch) add(id runlog.RunID, seq runlog.Seq, raw []byte) {
	if b.err != nil {
		return
	}
	if want := b.after + runlog.Seq(len(b.entries)) + 1; seq != want {
		b.err = &runlog.GapError{RunID: id, Want: want, Got: seq}
		return
	}
	rec := new(pb.Record)
	if err := proto.Unmarshal(raw, rec); err != nil {
		b.err = &DecodeError{RunID: id, Seq: seq, Err: err}
		return
	}
	b.entries = append(b.entries, Entry{Seq: seq, Record: rec, Raw: raw})
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
	rows, err := l.pool.Query(ctx, sql.FeedRead, ids, after, entriesPerRead)
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id  runlog.RunID
			seq int64
			raw []byte
		)
		if err := rows.Scan(&id, &seq, &raw); err != nil {
			return fmt.Errorf("read logs: %w", err)
		}
		batches[id].add(id, runlog.Seq(seq), raw)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	return nil
}

func (l *Listener) readOne(ctx context.Context, id runlog.RunID, after runlog.Seq) ([]Entry, error) {
	b := &batch{after: after}
	if err := l.read(ctx, map[runlog.RunID]*batch{id: b}); err != nil {
		return nil, err
	}
	if len(b.entries) == 0 && b.err != nil {
		return nil, b.err
	}
	// What precedes a fault is good; the next read begins with the fault.
	return b.entries, nil
}

// readForAll reads the logs of live runs that have grown, many in one
// statement, and never more often than the read interval allows.
func (l *Listener) readForAll(ctx context.Context) {
	var failures int
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hub.kick:
		}
		pause := l.timing.read
		if err := l.readDirty(ctx); err == nil {
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

func (l *Listener) readDirty(ctx context.Context) error {
	runs, batches := l.hub.takeDirty()
	if len(runs) == 0 {
		return nil
	}
	if err := l.read(ctx, batches); err != nil {
		l.hub.putBack(runs)
		return err
	}
	l.hub.deliver(runs, batches)
	return nil
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
		if len(b.entries) == entriesPerRead && b.err == nil {
			h.markDirty(w)
		}
	}
}

// append adds entries to the recent ones and drops the oldest beyond the
// bounds. The array is never written in place where a watcher may read it.
func (w *watched) append(entries []Entry) {
	recent := append(w.recent[:len(w.recent):len(w.recent)], entries...)
	for _, e := range entries {
		w.read = e.Seq
		w.bytes += len(e.Raw)
	}
	drop := 0
	for drop < len(recent)-1 && (len(recent)-drop > keepEntries || w.bytes > keepBytes) {
		w.bytes -= len(recent[drop].Raw)
		drop++
	}
	w.recent = recent[drop:]
}
