package graph

import (
	"github.com/pgexec/runtime/internal/slab"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Graph is the state of one run, as its records tell it. Not safe for
// concurrent use, NewID and the rules of Node apart.
type Graph struct {
	names
	results
	decisions
	spending
	times

	head     int64
	frontier frontier
	waiting  int
	// readied are the nodes that the record being applied made ready. What follows in its memory was given to nobody.
	readied   []*Node
	madeNodes slab.Slab[Node]
	madeEdges slab.Slab[*Node]
	settled   []*Node            // work list of settle, empty between calls
	consumed  map[int64]struct{} // signals
}

// New returns the graph of a run that has no records: its root is ready.
// kind and input are those of the run.
func New(kind string, input *pb.Payload) *Graph {
	g := &Graph{spending: newSpending(), consumed: make(map[int64]struct{})}
	g.init()
	root := &Node{Spec: Spec{ID: RootID, Kind: kind, Input: input}}
	g.nodes[RootID] = root
	g.ready(root)
	return g
}

// Head returns the seq of the last record applied, 0 before the first.
func (g *Graph) Head() int64 { return g.head }

// Frontier returns the nodes that are ready and not done, in the order they
// became ready. The slice is the caller's.
func (g *Graph) Frontier() []*Node {
	out := make([]*Node, 0, g.frontier.len)
	for n := g.frontier.first; n != nil; n = n.next {
		out = append(out, n)
	}
	return out
}

// Done reports whether no node is ready or waiting.
func (g *Graph) Done() bool { return g.frontier.len == 0 && g.waiting == 0 }

// Consumed reports that a node of the run has consumed that signal.
func (g *Graph) Consumed(signalID int64) bool {
	_, ok := g.consumed[signalID]
	return ok
}

// consume notes the signal that a record says it consumes; 0 is none.
func (g *Graph) consume(signalID int64) {
	if signalID != 0 {
		g.consumed[signalID] = struct{}{}
	}
}
