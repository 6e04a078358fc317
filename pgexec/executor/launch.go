package executor

import (
	"errors"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
)

// enqueue queues ready nodes in their order; those in a backoff wait for its
// end, and those whose kind is to wait begin to.
func (r *Run) enqueue(ready []*graph.Node) {
	for _, n := range ready {
		kind := r.x.kind(n.Kind)
		switch left := r.backoffLeft(n); {
		case r.stop.over():
		case IsWait(n.Kind):
			r.beginWait(n)
		case kind == nil:
			r.miss(n)
		case inDoubt(n, kind):
			r.doubt(n, kind, &Failure{Err: errInDoubt, Code: graph.CodeOutcomeUnknown})
		case left > 0:
			r.waiting.timers[n] = r.after(left, n)
		default:
			r.ready.enqueue(n)
		}
	}
}

func (r *Run) backoffLeft(n *graph.Node) time.Duration {
	if n.NotBefore == 0 {
		return 0
	}
	return time.UnixMicro(n.NotBefore).Sub(r.x.NowFunc())
}

// launch starts every queued node that the run's own limits allow, and names
// the limit that it met. A run that is to stop starts nothing more. Nodes of a kind
// with a fleet-wide limit get in line for it, no more than could start at once, and keep nothing else from it.
func (r *Run) launch() (limit string) {
	r.recall()
	if r.stopping() {
		return ""
	}
	r.endWaiting()
	if r.ready.queued() == 0 {
		return ""
	}
	r.ready.queue = r.admit(r.ready.queue, &limit, func() bool { return r.flight.attempts < r.maxParallel() }, r.launchNode)
	r.ready.crowd = r.admit(r.ready.crowd, &limit, func() bool { return r.flight.attempts+len(r.waiting.held) < r.maxParallel() }, r.hold)
	r.startTasks()
	return limit
}

// admit starts those of some nodes, in their order and while there is room, that
// the run's own limits let start, and returns the others. Of these it ends the ones
// that a node with limits of its own waits for.
func (r *Run) admit(nodes []*graph.Node, limit *string, room func() bool, start func(*graph.Node)) []*graph.Node {
	var kept []*graph.Node
	for len(nodes) > 0 && room() {
		n := nodes[0]
		nodes = nodes[1:]
		if *limit == "" {
			*limit = r.limitReached()
		}
		switch {
		case *limit == "" || n.OwnLimits:
			start(n)
		case !n.HoldsUpOwnLimits():
			kept = append(kept, n)
		case r.mayHaveTask(n):
			start(n)
		default:
			r.endHeld(n, *limit)
		}
	}
	if kept == nil {
		return nodes
	}
	return append(kept, nodes...)
}

// mayHaveTask reports, once, that a former owner may have begun a task for the node: then a worker may be at it, or
// have done it, and the node is in flight.
func (r *Run) mayHaveTask(n *graph.Node) bool {
	kind := r.x.kind(n.Kind)
	return kind != nil && kind.external && r.ready.takeFormer(n)
}

// endHeld ends a node that a limit keeps from starting, for the sake of one that
// waits for it and is to start all the same.
func (r *Run) endHeld(n *graph.Node, limit string) {
	words := "not run to its end: " + limit
	if n.Failure != nil {
		words += "; its last attempt failed" + afterColon(n.Failure.GetMessage())
	}
	r.recordPermanent(&attempt{node: n, finished: r.x.NowFunc()}, &Failure{Err: errors.New(words), Code: "limit_reached"})
}

// endWaiting ends, when a limit is reached, what else would keep such a node waiting: nodes in a backoff or in the
// line of a fleet-wide limit.
func (r *Run) endWaiting() {
	if len(r.waiting.timers)+len(r.waiting.held) == 0 {
		return
	}
	limit := r.limitReached()
	if limit == "" {
		return
	}
	for _, n := range r.waiting.toStart() {
		if !n.OwnLimits && n.HoldsUpOwnLimits() {
			r.waiting.giveUp(n)
			r.endHeld(n, limit)
		}
	}
}

func (r *Run) launchNode(n *graph.Node) {
	switch kind := r.x.kind(n.Kind); {
	case n.Kind == KindRun: // held at a limit before
		r.beginWait(n)
	case kind == nil: // it was declared until a moment ago
		r.miss(n)
	case kind.external:
		r.beginTask(n, kind)
	case r.limited(n):
		r.ready.crowd = append(r.ready.crowd, n)
	default:
		r.start(&attempt{node: n, kind: kind})
	}
}

func (r *Run) maxParallel() int {
	if r.outside.limits.MaxParallel > 0 {
		return min(r.outside.limits.MaxParallel, r.x.MaxParallelPerRun)
	}
	return r.x.MaxParallelPerRun
}
