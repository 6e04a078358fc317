package runlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// flusher sends one batch after another. It owns its connection and the buffers of its statements.
type flusher struct {
	cfg    WriterConfig
	queue  *queue
	teller *teller
	line   sync.Mutex // held by who uses conn
	conn   *pgx.Conn  // nil until it is needed, and when it was lost
	used   time.Time
	args   arguments
	// apart are the commits that nobody else waits for.
	apart sync.WaitGroup
}

func (f *flusher) run(ctx context.Context) {
	defer f.disconnect()
	defer f.apart.Wait()
	for {
		b, ok := f.queue.take()
		if !ok {
			return
		}
		f.bury(b.dead)
		slices.SortStableFunc(b.flights, func(x, y *flight) int { return bytes.Compare(x.tail.id[:], y.tail.id[:]) })
		for flights := b.flights; len(flights) > 0; {
			var later []*flight
			flights, later = distinct(flights)
			f.flush(ctx, b.action, flights)
			flights = later
		}
	}
}

// bury tells dead runs what ended them.
func (f *flusher) bury(dead []*flight) {
	for _, fl := range dead {
		f.resolve([]*flight{fl}, fl.tail.err)
	}
}

// distinct returns the first flight of each run, and the others. A run can have two tails, of a former claim of ours
// and of the current one; in one statement they could not be told apart. The flights are in the order of their ids.
func distinct(flights []*flight) (first, others []*flight) {
	same := func(x, y *flight) bool { return x.tail.id == y.tail.id }
	for i, fl := range flights {
		if i > 0 && same(fl, flights[i-1]) {
			others = append(others, fl)
		}
	}
	if others == nil {
		return flights, nil
	}
	return slices.CompactFunc(slices.Clone(flights), same), others
}

// flush sends the flights until the fate of each is known, and tells it. They are of different runs, in the order of
// their ids.
func (f *flusher) flush(ctx context.Context, a action, flights []*flight) {
	pace := flushBackoff()
	for attempt := 1; len(flights) > 0; attempt++ {
		err := f.send(ctx, a, flights)
		switch {
		case err == nil:
			f.settle(ctx, flights)
			return
		case ctx.Err() != nil:
			f.resolve(flights, ErrClosed)
			return
		case !mayRetry(err):
			f.giveUp(ctx, a, flights, err)
			return
		}
		f.cfg.Logger.WarnContext(ctx, "flush of run logs will be repeated", "runs", len(flights), "attempt", attempt, "error", err)
		if !pace.wait(ctx) {
			f.resolve(flights, ErrClosed)
			return
		}
		flights = f.look(ctx, flights)
	}
}

// settle tells what a statement answered.
func (f *flusher) settle(ctx context.Context, flights []*flight) {
	flights = f.take(flights, written, nil)
	flights = f.take(flights, busy, errBusy)
	flights = f.take(flights, changed, ErrChanged)
	f.resolve(f.look(ctx, flights), ErrFenced)
}

// take resolves the flights with that outcome and returns the others.
func (f *flusher) take(flights []*flight, o outcome, err error) (others []*flight) {
	those, others := split(flights, func(fl *flight) bool { return fl.outcome == o })
	f.resolve(those, err)
	return others
}

// giveUp ends flights that a permanent error stopped. One bad run must not take the others of its
// batch with it, so each is tried alone.
func (f *flusher) giveUp(ctx context.Context, a action, flights []*flight, err error) {
	if len(flights) == 1 {
		f.resolve(flights, fmt.Errorf("append record: %w", err))
		return
	}
	for i := range flights {
		f.flush(ctx, a, flights[i:i+1])
	}
}

// look finds out whose the records after the flights' heads are, where the answer to a flush was lost or
// was no. The same bytes are our own append: confirmed. Other bytes are a new owner's: fenced.
// Those with nothing there are returned.
func (f *flusher) look(ctx context.Context, flights []*flight) (absent []*flight) {
	pace := flushBackoff()
	for len(flights) > 0 {
		found, err := f.readNext(ctx, flights)
		switch {
		case err == nil:
			present, absent := split(flights, func(fl *flight) bool { return found[fl.tail.id] != nil })
			own, others := split(present, func(fl *flight) bool {
				return bytes.Equal(found[fl.tail.id], fl.entries[0].record)
			})
			f.resolve(own, nil)
			f.resolve(others, ErrFenced)
			return absent
		case ctx.Err() != nil:
			f.resolve(flights, ErrClosed)
			return nil
		case !mayRetry(err):
			f.resolve(flights, fmt.Errorf("look for own append: %w", err))
			return nil
		}
		f.cfg.Logger.WarnContext(ctx, "look at run logs will be repeated", "runs", len(flights), "error", err)
		if !pace.wait(ctx) {
			f.resolve(flights, ErrClosed)
			return nil
		}
	}
	return nil
}

// resolve tells the fate of flights to their runs' callbacks and lets the runs be flushed again. Until then
// no other flusher has them, so that a run's callbacks come in order. A run that could not be ended yet
// goes on; any other error is its last word.
func (f *flusher) resolve(flights []*flight, err error) {
	for _, fl := range flights {
		if err != nil {
			if !leavesRunAsItWas(err) {
				f.queue.fail(fl, err)
			}
			for _, e := range fl.entries {
				e.done(0, err)
			}
			continue
		}
		head := f.queue.confirm(fl)
		for i, e := range fl.entries {
			e.done(fl.head+1+Seq(i), nil)
		}
		f.cfg.CommittedFunc(fl.tail.id, head)
	}
	f.queue.land(flights)
}

// leavesRunAsItWas: the log and our ownership are as before, and the run may go on.
func leavesRunAsItWas(err error) bool {
	var tx *TxError
	return errors.Is(err, errBusy) || errors.Is(err, ErrChanged) || errors.As(err, &tx)
}

// split keeps the order in both parts.
func split(flights []*flight, is func(*flight) bool) (yes, no []*flight) {
	for _, fl := range flights {
		if is(fl) {
			yes = append(yes, fl)
		} else {
			no = append(no, fl)
		}
	}
	return yes, no
}
