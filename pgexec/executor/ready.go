package executor

import "github.com/pgexec/runtime/pgexec/graph"

// ready are the nodes that wait for nothing but to be started, each in one of
// the lists and in the order in which they became ready.
type ready struct {
	queue   []*graph.Node
	crowd   []*graph.Node // yet to get in line for a fleet-wide limit
	foreign []*graph.Node // of kinds this replica does not have
	asking  bool          // whether the kind of a foreign one has been declared
	// former are those that were ready when the run was claimed: what they do may have begun before.
	former map[*graph.Node]bool
}

// claimed takes in the nodes that were ready when the run was claimed.
func (r *ready) claimed(nodes []*graph.Node) {
	r.former = make(map[*graph.Node]bool, len(nodes))
	for _, n := range nodes {
		r.former[n] = true
	}
}

// takeFormer reports, once of each node, that it was ready when the run was claimed.
func (r *ready) takeFormer(n *graph.Node) bool {
	former := r.former[n]
	delete(r.former, n)
	return former
}

// queued is the number of nodes that wait for nothing but the run's own limits.
func (r *ready) queued() int { return len(r.queue) + len(r.crowd) }

func (r *ready) enqueue(n *graph.Node) { r.queue = append(r.queue, n) }

// takeForeign empties the list of foreign nodes.
func (r *ready) takeForeign() []*graph.Node {
	r.asking = false
	foreign := r.foreign
	r.foreign = nil
	return foreign
}

// missingKinds returns the kinds of the nodes that could start, if this replica has none of them.
//
// What only waits, waits with the rest: a signal, a time or the end of a backoff is looked at
// again by whoever takes the run. With a wake this replica would take it at once, for nothing.
func (r *ready) missingKinds() []string {
	if len(r.queue) > 0 {
		return nil
	}
	var kinds []string
	seen := make(map[string]bool)
	for _, n := range r.foreign {
		if !seen[n.Kind] {
			seen[n.Kind] = true
			kinds = append(kinds, n.Kind)
		}
	}
	return kinds
}
