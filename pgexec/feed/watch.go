package feed

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Entry is one record of a log. Watchers of one run share it: it must not be changed.
type Entry struct {
	Seq    runlog.Seq
	Record *pb.Record
	// Raw is the record as the log has it.
	Raw []byte
}

// Watch yields the records of a run after the given position, each once and in
// order, those that exist and then those that come, and ends after the run's
// finished record. It outlasts failures of the database. It ends with an error
// when ctx ends, with ctx's cause; when the Listener is stopped, with
// [ErrStopped]; and when the log cannot be read for good. Between two reads it
// holds no connection, however slow the caller is.
func (l *Listener) Watch(ctx context.Context, id runlog.RunID, after runlog.Seq) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := l.hub.join(id)
		defer l.hub.leave(w)
		after := max(after, 0)
		// The record at the position itself tells whether anything is to come.
		entries, err := l.readSelf(ctx, w, max(after-1, 0))
		for ; err == nil; entries, err = l.next(ctx, w, after) {
			for _, e := range entries {
				if e.Seq > after && !yield(e, nil) {
					return
				}
				after = max(after, e.Seq)
				if e.Record.GetFinished() != nil {
					return
				}
			}
		}
		yield(Entry{}, err)
	}
}

// next returns records after the position, waiting for them.
func (l *Listener) next(ctx context.Context, w *watched, after runlog.Seq) ([]Entry, error) {
	for {
		entries, wait, err := l.hub.recentAfter(w, after)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		if wait == nil {
			entries, err := l.readSelf(ctx, w, after)
			if err != nil || len(entries) > 0 {
				return entries, err
			}
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.stop:
			return nil, ErrStopped
		}
	}
}

// recentAfter returns the shared records after the position; or a channel that
// tells when there may be some; or neither, when the watcher has to read for itself.
func (h *hub) recentAfter(w *watched, after runlog.Seq) (entries []Entry, wait <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, nil, w.err
	case !w.live:
		return nil, nil, nil
	case after >= w.read:
		return nil, w.changed, nil
	}
	first := w.read - runlog.Seq(len(w.recent)) + 1
	if after+1 < first {
		return nil, nil, nil
	}
	// The entries do not change, the slice's array does not move: no copy is needed.
	return w.recent[after+1-first:], nil, nil
}

// readSelf reads for one watcher. Having come to the end of the log, it leaves
// what follows to the shared reader.
func (l *Listener) readSelf(ctx context.Context, w *watched, after runlog.Seq) ([]Entry, error) {
	for failures := 1; ; failures++ {
		entries, full, err := l.readOne(ctx, w.id, after)
		switch {
		case err == nil:
			if !full {
				l.hub.goLive(w, after, entries)
			}
			return entries, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !Transient(err):
			return nil, err
		}
		wait, cancel := context.WithTimeout(ctx, backoff(failures))
		select {
		case <-wait.Done():
			cancel()
		case <-l.stop:
			cancel()
			return nil, ErrStopped
		}
	}
}

// goLive notes that the log's end was seen, after the position and these entries.
func (h *hub) goLive(w *watched, after runlog.Seq, entries []Entry) {
	end := after
	if n := len(entries); n > 0 {
		end = entries[n-1].Seq
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A log that ends before what was read of it has lost commits in a failover.
	shrunk := w.live && len(entries) == 0 && w.read > end
	if w.live && !shrunk {
		return
	}
	w.live, w.read, w.recent, w.bytes = true, end, nil, 0
	w.broadcast()
	if w.hinted > end || shrunk {
		h.markDirty(w)
	}
}

// Transient says whether an error of a read may go away by itself.
func Transient(err error) bool {
	var gap *runlog.GapError
	var decode *runlog.DecodeError
	if errors.As(err, &gap) || errors.As(err, &decode) || errors.Is(err, puddle.ErrClosedPool) {
		return false
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return true
	}
	switch pgErr.Code[:2] {
	case "08", "40", "53", "55", "57", "58":
		return true
	}
	return false
}
