package kinds

import (
	"slices"
	"strings"
)

// checkCycle follows parents depth first, without recursion, and finds the order of the nodes. It names the
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
				p.order = append(p.order, at)
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

// checkRefs makes sure that what a node's references name is done when it
// starts: its ancestors within the graph, the graph node, and that one's ancestors.
func (p *graphPlan) checkRefs(scope graphScope) error {
	var above []nodeSet
	for i, n := range p.nodes {
		for _, ref := range n.refs {
			target, listed := p.byID[ref.NodeID]
			if !listed {
				if ref.NodeID != scope.self && !scope.ancestorFunc(ref.NodeID) {
					return badInput("%s.input: reference %q: there is no node %q", n.path, clip(ref.String(), 80), clip(string(ref.NodeID), 80))
				}
				continue
			}
			if above == nil {
				above = p.ancestors()
			}
			if !above[i].has(target) {
				return badInput("%s.input: reference %q: %s is not an ancestor; name it, or a node that follows it, in after",
					n.path, clip(ref.String(), 80), p.nodes[target].id)
			}
		}
	}
	return nil
}

// nodeSet has a bit for each node of the list. For all nodes at once it finds ancestors in the time of a word for
// each edge and 64 nodes, where walks would take a step for each edge and node.
type nodeSet []uint64

func (s nodeSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// ancestors are the nodes above each node.
func (p *graphPlan) ancestors() []nodeSet {
	words := (len(p.nodes) + 63) / 64
	above := make([]nodeSet, len(p.nodes))
	for _, i := range p.order {
		above[i] = make(nodeSet, words)
		for _, parent := range p.nodes[i].after {
			above[i][parent/64] |= 1 << (parent % 64)
			for w, bits := range above[parent] {
				above[i][w] |= bits
			}
		}
	}
	return above
}
