package graph

import "slices"

// results are the nodes that say how the run ends, should nothing follow.
type results struct {
	// failures holds failed nodes by ascending seq; handled ones at the front are dropped by Failure.
	failures []*Node
	// leaves holds succeeded nodes by ascending seq; those with children at the end are dropped by Result.
	leaves []*Node
	final  *Node
}

// ended takes in a node that a record ended.
func (r *results) ended(n *Node) {
	switch {
	case n.Status() != StatusSucceeded:
		r.failures = append(r.failures, n)
	case n.Final:
		r.final = n
	case r.final == nil && !n.parent:
		r.leaves = append(r.leaves, n)
	}
}

// revived drops the failures of nodes that are to run again.
func (r *results) revived() {
	r.failures = slices.DeleteFunc(r.failures, func(n *Node) bool { return !n.Status().Done() })
}

// Failure returns the failed node with the lowest seq whose failure no all-done
// node sees, directly or through skipped nodes; nil if there is none.
func (r *results) Failure() *Node {
	for len(r.failures) > 0 && r.failures[0].handled {
		r.failures = r.failures[1:] // once handled, handled for good
	}
	if len(r.failures) == 0 {
		return nil
	}
	return r.failures[0]
}

// Failures returns all failed nodes whose failure no all-done node sees, by ascending seq.
func (r *results) Failures() []*Node {
	var out []*Node
	for _, n := range r.failures {
		if !n.handled {
			out = append(out, n)
		}
	}
	return out
}

// Result returns the node whose output is the result of the run: the last
// succeeded one marked final, else the last succeeded one without children;
// nil if there is neither.
func (r *results) Result() *Node {
	if r.final != nil {
		return r.final
	}
	for len(r.leaves) > 0 {
		last := r.leaves[len(r.leaves)-1]
		if !last.parent {
			return last
		}
		r.leaves = r.leaves[:len(r.leaves)-1] // a parent is never a leaf again
	}
	return nil
}
