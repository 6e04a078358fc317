package executor

import (
	"slices"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/wake"
)

// waiting are the nodes that wait for something, without a goroutine: each in
// one of the maps.
type waiting struct {
	timers map[*graph.Node]*time.Timer // in a backoff, or to be begun again in a moment
	waits  map[*graph.Node]*wait
	held   map[*graph.Node]*place // by a fleet-wide limit
	// children counts the waits for child runs and tasks that are started, or about to be.
	children int
	newTasks []*wait // of which the task is yet to be made
}

func newWaiting() waiting {
	return waiting{
		timers: make(map[*graph.Node]*time.Timer),
		waits:  make(map[*graph.Node]*wait),
		held:   make(map[*graph.Node]*place),
	}
}

func (w *waiting) len() int { return len(w.waits) + len(w.timers) + len(w.held) }

// forApproval: somebody is asked to approve something.
func (w *waiting) forApproval() bool {
	for n := range w.waits {
		if n.Kind == KindApproval {
			return true
		}
	}
	return false
}

// timeCame ends a backoff and reports that there was one.
func (w *waiting) timeCame(n *graph.Node) bool {
	_, ok := w.timers[n]
	delete(w.timers, n)
	return ok
}

// count adds a wait's child or task to those in flight, once.
func (w *waiting) count(one *wait) {
	if !one.counted {
		one.counted = true
		w.children++
	}
}

func (w *waiting) uncount(one *wait) {
	if one.counted {
		one.counted = false
		w.children--
	}
}

// drop takes back that the wait for a child or a task has begun.
func (w *waiting) drop(one *wait) {
	w.uncount(one)
	delete(w.waits, one.node)
}

// finish drops the wait of a node and returns it, nil if there is none.
func (w *waiting) finish(n *graph.Node) *wait {
	one := w.waits[n]
	if one == nil {
		return nil
	}
	if one.timer != nil {
		one.timer.Stop()
	}
	delete(w.waits, n)
	return one
}

// childNodes lists the nodes that wait for a child run.
func (w *waiting) childNodes() []string {
	var out []string
	for n, one := range w.waits {
		if n.Kind == KindRun && !one.ending {
			out = append(out, string(n.ID))
		}
	}
	return out
}

// onSignals lists what ends the waits for signals.
func (w *waiting) onSignals() []wake.SignalWait {
	var out []wake.SignalWait
	for n, one := range w.waits {
		if one.takesSignal() && !one.ending {
			out = append(out, wake.SignalWait{Name: one.signal.Name, NodeID: string(n.ID), Addressed: one.addressed(), SinceUs: one.sinceUs})
		}
	}
	return out
}

// onTasks: some node waits for a program outside.
func (w *waiting) onTasks() bool {
	for _, one := range w.waits {
		if one.task != nil && !one.ending {
			return true
		}
	}
	return false
}

// unstarted: some child run or task is yet to be started.
func (w *waiting) unstarted() bool {
	for n := range w.timers {
		if n.NotBefore == 0 {
			return true
		}
	}
	return false
}

// nextDueUs returns the earliest time at which time alone moves the run; 0 for never.
func (w *waiting) nextDueUs() int64 {
	var next int64
	earlier := func(us int64) {
		if us != 0 && (next == 0 || us < next) {
			next = us
		}
	}
	for _, one := range w.waits {
		earlier(one.dueUs)
	}
	for n := range w.timers {
		earlier(n.NotBefore)
	}
	return next
}

// toStart lists the nodes whose next attempt waits for its time or for a fleet-wide limit.
func (w *waiting) toStart() []*graph.Node {
	var out []*graph.Node
	for n := range w.timers {
		if n.NotBefore != 0 {
			out = append(out, n)
		}
	}
	for n, p := range w.held {
		if p.ticket != nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, byID)
	return out
}

// giveUp has a node wait no longer that toStart has listed.
func (w *waiting) giveUp(n *graph.Node) {
	if t := w.timers[n]; t != nil {
		t.Stop()
		delete(w.timers, n)
	}
	if p := w.held[n]; p != nil {
		delete(w.held, n)
		p.release()
	}
}

// lines lists the limits that hold the run's nodes, each with the time since
// when the first of them waits.
func (w *waiting) lines() []wake.Held {
	first := make(map[throttle.ID]time.Time)
	for _, p := range w.held {
		if at, ok := first[p.id]; !ok || p.since().Before(at) {
			first[p.id] = p.since()
		}
	}
	held := make([]wake.Held, 0, len(first))
	for id, since := range first {
		held = append(held, wake.Held{Kind: id.Kind, Key: id.Key, Since: since})
	}
	return held
}

// leaveLines gives up all places of nodes that have not started.
func (w *waiting) leaveLines() {
	for n, p := range w.held {
		delete(w.held, n)
		p.release()
	}
}

func (w *waiting) stopTimers() {
	for _, t := range w.timers {
		t.Stop()
	}
	for _, one := range w.waits {
		if one.timer != nil {
			one.timer.Stop()
		}
	}
}
