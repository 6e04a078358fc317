package kinds

import (
	"maps"
	"slices"
	"strings"

	"github.com/pgexec/runtime/pgexec/graph"
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

// checkRefs makes sure that what a node's references name is done when it
// starts: its ancestors within the graph, the graph node, and that one's ancestors.
func (p *graphPlan) checkRefs(i int, n *graphNode, scope graphScope) error {
	wanted := make(map[int]graph.Ref)
	for _, ref := range n.refs {
		if target, listed := p.byID[ref.NodeID]; listed {
			wanted[target] = ref
			continue
		}
		if ref.NodeID != scope.self && !scope.ancestorFunc(ref.NodeID) {
			return badInput("%s.input: reference %q: there is no node %q", n.path, clip(ref.String(), 80), clip(string(ref.NodeID), 80))
		}
	}
	p.walkUp(i, wanted)
	if len(wanted) == 0 {
		return nil
	}
	target := slices.Sorted(maps.Keys(wanted))[0]
	return badInput("%s.input: reference %q: %s is not an ancestor; name it, or a node that follows it, in after",
		n.path, clip(wanted[target].String(), 80), p.nodes[target].id)
}

// walkUp takes out of wanted what is above a node, nearest first, and stops when nothing is left.
func (p *graphPlan) walkUp(i int, wanted map[int]graph.Ref) {
	p.walks++
	p.walked = append(p.walked[:0], i)
	for next := 0; next < len(p.walked) && len(wanted) > 0; next++ {
		for _, parent := range p.nodes[p.walked[next]].after {
			if p.nodes[parent].seenBy != p.walks {
				p.nodes[parent].seenBy = p.walks
				delete(wanted, parent)
				p.walked = append(p.walked, parent)
			}
		}
	}
}
