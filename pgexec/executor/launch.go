package executor

import (
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
	if r.ready.queued() == 0 || r.stopping() {
		return ""
	}
	r.ready.queue = r.admit(r.ready.queue, &limit, func() bool { return r.flight.attempts < r.maxParallel() }, r.launchNode)
	r.ready.crowd = r.admit(r.ready.crowd, &limit, func() bool { return r.flight.attempts+len(r.waiting.held) < r.maxParallel() }, r.hold)
	r.startTasks()
	return limit
}

// admit starts those of some nodes, in their order and while there is room, that
// the run's own limits let start, and returns the others.
func (r *Run) admit(nodes []*graph.Node, limit *string, room func() bool, start func(*graph.Node)) []*graph.Node {
	var kept []*graph.Node
	for len(nodes) > 0 && room() {
		n := nodes[0]
		nodes = nodes[1:]
		if *limit == "" {
			*limit = r.limitReached()
		}
		if *limit != "" && !n.OwnLimits {
			kept = append(kept, n)
			continue
		}
		start(n)
	}
	if kept == nil {
		return nodes
	}
	return append(kept, nodes...)
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

// start makes an attempt in a goroutine of its own.
func (r *Run) start(a *attempt) {
	budget := r.budget()
	r.flight.attempts++
	go r.attempt(r.launchCtx, a, budget)
}

func (r *Run) maxParallel() int {
	if r.outside.limits.MaxParallel > 0 {
		return min(r.outside.limits.MaxParallel, r.x.MaxParallelPerRun)
	}
	return r.x.MaxParallelPerRun
}
