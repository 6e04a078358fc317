package runlog

import (
	"sync"
	"time"
)

// holdBack is the longest time for which a flush waits for more runs: of the order of a flush without a disk, far less
// than one with.
const holdBack = 200 * time.Microsecond

// action is what a flush does; one flush does one thing, for many runs.
type action int

const (
	appendRecords action = iota
	finishRuns
	commitTx // one run, in a transaction of its handler; not done by flushers
	actions
)

// flight is what one flush carries of one run. It is not changed until its fate is known, so that
// the bytes at head + 1 tell whether it is in the log.
type flight struct {
	tail    *Tail
	head    Seq
	entries []entry
	bytes   int
	// commits: its one record commits in the transaction of a handler, or was to.
	commits bool
	// outcome is what the last statement sent did with it.
	outcome outcome
}

// outcome is a statement's answer for one run.
type outcome int

const (
	// refused: not written; who owns the run is still to be found out.
	refused outcome = iota
	written
	// busy: not written, since somebody else holds the lock of a row.
	busy
	// changed: not written, since something has reached the run that the decision does not know.
	changed
)

// batch is one flush.
type batch struct {
	action  action
	flights []*flight
	// dead are runs that have failed: nothing is sent, the callbacks get the run's error.
	dead []*flight
}

// queue holds what waits for a flush. A run with waiting entries is in one of the ready lists
// or in the hands of one flusher.
type queue struct {
	maxRows  int
	maxBytes int

	mu    sync.Mutex
	wake  sync.Cond // what flushers wait for
	apart sync.Cond // what waits for commits waits for
	ready [actions][]*Tail
	last  action
	// flying is the number of runs in the hands of flushers; committing, of those whose transactions are on their way to an end.
	flying, committing int
	// heldUntil is when that which is held back goes out in any case; zero while nothing is held back.
	heldUntil time.Time
	// flushers that still run; with none left a callback is called where the append is made.
	flushers int
	closing  bool
	aborted  bool
}

func newQueue(cfg WriterConfig) *queue {
	q := &queue{maxRows: cfg.MaxBatchRows, maxBytes: cfg.MaxBatchBytes, flushers: cfg.Flushers}
	q.wake.L, q.apart.L = &q.mu, &q.mu
	return q
}

func (q *queue) push(t *Tail, e entry) {
	q.mu.Lock()
	if q.flushers == 0 {
		err := t.err
		q.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		e.done(0, err)
		return
	}
	t.entries = append(t.entries, e)
	if !t.scheduled {
		t.scheduled = true
		q.schedule(t)
	}
	q.mu.Unlock()
}

// schedule puts a run with waiting entries at the end of its ready list. q.mu is held.
func (q *queue) schedule(t *Tail) {
	a := t.nextAction()
	q.ready[a] = append(q.ready[a], t)
	if a == commitTx {
		q.apart.Signal()
	} else {
		q.wake.Signal()
	}
}

func (t *Tail) nextAction() action { return t.entries[0].action() }

func (e *entry) action() action {
	switch {
	case e.finish != nil:
		return finishRuns
	case e.tx != nil:
		return commitTx
	default:
		return appendRecords
	}
}

func (q *queue) close(abort bool) {
	q.mu.Lock()
	q.closing = true
	q.aborted = q.aborted || abort
	q.mu.Unlock()
	q.wake.Broadcast()
	q.apart.Broadcast()
}

// take waits for what flushers do. It returns false when the queue is closed and empty; the flusher must
// not come back then.
func (q *queue) take() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.worthwhile() {
		if q.closing && q.waiting() == 0 && len(q.ready[commitTx]) == 0 && q.committing == 0 {
			if q.flushers--; q.flushers == 0 {
				q.apart.Broadcast()
			}
			return batch{}, false
		}
		q.wake.Wait()
	}
	q.heldUntil = time.Time{}
	a := (q.last + 1) % commitTx // in turn
	for len(q.ready[a]) == 0 {
		a = (a + 1) % commitTx
	}
	q.last = a
	b := q.fill(a)
	q.flying += len(b.flights) + len(b.dead)
	return b, true
}

// takeCommit waits for a transaction to commit, and for no flush: those in flight may wait for a lock that it holds. It
// returns false when no flusher is left.
func (q *queue) takeCommit() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready[commitTx]) == 0 {
		if q.flushers == 0 {
			return batch{}, false
		}
		q.apart.Wait()
	}
	b := q.fill(commitTx)
	q.committing += len(b.flights) + len(b.dead)
	return b, true
}

// waiting is the number of runs that wait for a flusher.
func (q *queue) waiting() int {
	n := 0
	for _, list := range q.ready[:commitTx] {
		n += len(list)
	}
	return n
}

// worthwhile tells whether a flush should leave now. While flushes are in flight that carry more runs than wait
// here, more runs will come in when those land, and one larger flush is cheaper than two. But not for long,
// since a flush in flight may be held up by a lock. q.mu is held.
func (q *queue) worthwhile() bool {
	n := q.waiting()
	if n == 0 || n >= q.flying || q.closing {
		return n > 0
	}
	now := time.Now()
	if q.heldUntil.IsZero() {
		q.heldUntil = now.Add(holdBack)
		time.AfterFunc(holdBack, func() {
			// With the lock, so that a flusher that has just looked at the clock is waiting by now.
			q.mu.Lock()
			defer q.mu.Unlock()
			q.wake.Signal()
		})
	}
	return !now.Before(q.heldUntil)
}

// fill takes runs from a ready list within the bounds of a batch, and at least one. q.mu is held.
func (q *queue) fill(a action) batch {
	b := batch{action: a}
	list := q.ready[a]
	rows, bytes, n := 0, 0, 0
	maxRows := q.maxRows
	if a == commitTx {
		maxRows = 1
	}
	for ; n < len(list) && rows < maxRows && bytes < q.maxBytes; n++ {
		t := list[n]
		if t.err == nil && q.aborted {
			t.err = ErrClosed
		}
		if t.err != nil {
			dead := t.depart(len(t.entries))
			dead.commits = a == commitTx
			b.dead = append(b.dead, dead)
			continue
		}
		f := t.depart(t.fitting(a, maxRows-rows, q.maxBytes-bytes))
		f.commits = a == commitTx
		b.flights = append(b.flights, f)
		rows += len(f.entries)
		bytes += f.bytes
	}
	clear(list[:n])
	if q.ready[a] = list[n:]; n == len(list) {
		q.ready[a] = list[:0]
	}
	return b
}

// fitting is how many of a run's entries one flush takes: those of the action, at least one, within the bounds.
func (t *Tail) fitting(a action, rows, bytes int) int {
	if a != appendRecords {
		return 1
	}
	n, size := 1, len(t.entries[0].record)
	for ; n < len(t.entries) && n < rows && t.entries[n].action() == appendRecords; n++ {
		if size += len(t.entries[n].record); size > bytes {
			break
		}
	}
	return n
}

// depart takes the first n entries out of the run's queue. queue.mu is held.
func (t *Tail) depart(n int) *flight {
	f := &flight{tail: t, head: t.head, entries: t.entries[:n:n]}
	for _, e := range f.entries {
		f.bytes += len(e.record)
	}
	if t.entries = t.entries[n:]; len(t.entries) == 0 {
		t.entries = nil
	}
	return f
}

// confirm makes the flight's last record the head of its run.
func (q *queue) confirm(f *flight) Seq {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.tail.head = f.head + Seq(len(f.entries))
	return f.tail.head
}

// fail makes err the run's last word, unless it has one.
func (q *queue) fail(f *flight, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.tail.err == nil {
		f.tail.err = err
	}
}

// land ends flights whose callbacks have returned: their runs may be flushed again.
func (q *queue) land(flights []*flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range flights {
		if f.commits {
			q.committing--
			q.wake.Broadcast() // perhaps to stop
		} else {
			q.flying--
		}
		if t := f.tail; len(t.entries) > 0 {
			q.schedule(t)
		} else {
			t.scheduled = false
		}
	}
}
