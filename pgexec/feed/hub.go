package feed

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
)

const (
	// keepEntries and keepBytes bound the recent records kept of a watched run.
	// A watcher that is further behind reads for itself.
	keepEntries, keepBytes = 512, 1 << 20
	// runsPerRead, entriesPerRead for each run, and readBytes for all of them together bound one read; of each run there is
	// one record, whatever its size.
	runsPerRead, entriesPerRead, readBytes = 200, 250, 16 << 20
)

// watched is a run that somebody in this process watches. All fields but id
// are guarded by the hub's mutex.
type watched struct {
	id   runlog.RunID
	refs int
	// ticks are the subscriptions.
	ticks    map[chan struct{}]struct{}
	nextPoll time.Time
	// hinted is the highest head a hint told.
	hinted runlog.Seq
	// live says that read is the end of the log as the shared reader knows it;
	// until a watcher has read to the end, there is nothing to share.
	live bool
	read runlog.Seq
	// recent are the last records up to read, without gaps.
	recent []Entry
	bytes  int
	// err ends all watches of the run.
	err error
	// changed is closed and replaced when read, live or err changes.
	changed chan struct{}
}

// broadcast wakes all watchers of the run.
func (w *watched) broadcast() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// hub knows all runs that are watched in this process.
type hub struct {
	mu   *sync.Mutex
	runs map[runlog.RunID]*watched
	// dirty are the live runs the shared reader has to look at.
	dirty map[*watched]struct{}
	// kick holds a token while dirty is not empty.
	kick chan struct{}
}

func newHub() hub {
	return hub{
		mu:    new(sync.Mutex),
		runs:  make(map[runlog.RunID]*watched),
		dirty: make(map[*watched]struct{}),
		kick:  make(chan struct{}, 1),
	}
}

// join returns the watched run, which is kept until every join is followed by a leave.
func (h *hub) join(id runlog.RunID) *watched {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.runs[id]
	if w == nil {
		w = &watched{id: id, ticks: make(map[chan struct{}]struct{}), changed: make(chan struct{})}
		h.runs[id] = w
	}
	w.refs++
	return w
}

func (h *hub) leave(w *watched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.refs--; w.refs == 0 {
		delete(h.runs, w.id)
		delete(h.dirty, w)
	}
}

func (h *hub) subscribe(w *watched, tick chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.ticks[tick] = struct{}{}
}

func (h *hub) unsubscribe(w *watched, tick chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(w.ticks, tick)
}

// hints passes on the hints of a notification to those who watch.
func (h *hub) hints(payload string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return parseHints(payload, func(id runlog.RunID, head runlog.Seq) {
		w := h.runs[id]
		if w == nil || head <= w.hinted {
			return
		}
		w.hinted = head
		h.look(w, head > w.read)
	})
}

// pollAll has everybody look.
func (h *hub) pollAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.runs {
		h.look(w, true)
	}
}

// pollDue has those look whose time has come, spread over the period.
func (h *hub) pollDue(now time.Time, period time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.runs {
		if w.nextPoll.IsZero() {
			w.nextPoll = now.Add(rand.N(period))
		}
		if !now.Before(w.nextPoll) {
			w.nextPoll = now.Add(period)
			h.look(w, true)
		}
	}
}

// look tells the subscriptions of a run and, if asked, has its log read.
func (h *hub) look(w *watched, read bool) {
	for tick := range w.ticks {
		select {
		case tick <- struct{}{}:
		default:
		}
	}
	if read && w.live && w.err == nil {
		h.markDirty(w)
	}
}

func (h *hub) markDirty(w *watched) {
	h.dirty[w] = struct{}{}
	select {
	case h.kick <- struct{}{}:
	default:
	}
}
