package kinds

import (
	"slices"
	"strings"
)

// checkCycle follows parents depth first, without recursion, and names the
// nodes of the first cycle in the order they would run.
func (p *graphPlan) checkCycle() error {
	const unseen, open, closed = 0, 1, 2
	state := make([]uint8, len(p.nodes))
	next := make([]int, len(p.nodes)) // the parent to look at next
	for start := range p.nodes {
		if state[start] != unseen {
			continue
		}
		state[start] = open
		path := []int{start}
		for len(path) > 0 {
			at := path[len(path)-1]
			if next[at] == len(p.nodes[at].after) {
				state[at] = closed
				path = path[:len(path)-1]
				continue
			}
			parent := p.nodes[at].after[next[at]]
			next[at]++
			switch state[parent] {
			case open:
				return p.cycleFault(path[slices.Index(path, parent):])
			case unseen:
				state[parent] = open
				path = append(path, parent)
			}
		}
	}
	return nil
}

// cycleFault names a cycle, given from child to parent.
func (p *graphPlan) cycleFault(cycle []int) error {
	const most = 20
	first := slices.Min(cycle) // the same words wherever the search began
	at := slices.Index(cycle, first)
	var words strings.Builder
	for i := range cycle {
		if i == most {
			words.WriteString("… → ")
			break
		}
		// Backwards, as the list goes from child to parent.
		words.WriteString(string(p.nodes[cycle[(at-i+len(cycle))%len(cycle)]].id) + " → ")
	}
	return badInput("nodes: cycle %s%s", words.String(), p.nodes[first].id)
}

// checkRefs makes sure that what a reference names is done when the node starts:
// an ancestor within the graph, the graph node, or one of its own ancestors.
func (p *graphPlan) checkRefs(i int, n *graphNode, scope graphScope) error {
	if len(n.refs) == 0 {
		return nil
	}
	var within map[int]bool
	for _, ref := range n.refs {
		target, listed := p.byID[ref.NodeID]
		switch {
		case listed:
			if within == nil {
				within = p.ancestors(i)
			}
			if !within[target] {
				return badInput("%s.input: reference %q: %s is not an ancestor; name it, or a node that follows it, in after",
					n.path, clip(ref.String(), 80), ref.NodeID)
			}
		case ref.NodeID != scope.self && !scope.ancestorFunc(ref.NodeID):
			return badInput("%s.input: reference %q: there is no node %q", n.path, clip(ref.String(), 80), clip(string(ref.NodeID), 80))
		}
	}
	return nil
}

// ancestors returns the positions of all nodes above one.
func (p *graphPlan) ancestors(i int) map[int]bool {
	above := make(map[int]bool)
	stack := slices.Clone(p.nodes[i].after)
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !above[at] {
			above[at] = true
			stack = append(stack, p.nodes[at].after...)
		}
	}
	return above
}
