package graph

import (
	"math"
	"sync"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Graph is the state of one run, as its records tell it. Not safe for
// concurrent use, NewID and the rules of Node apart.
type Graph struct {
	// mu lets NewID, called by handlers, read what Apply and Check write. The
	// owner alone writes nodes and reserved, so it reads them without mu.
	mu    sync.Mutex
	nodes map[NodeID]*Node
	// reserved holds ids of specs that were checked and are not yet applied, with the node that spawns them.
	reserved map[NodeID]*Node
	// lastID is the highest number known or given out, by kind.
	lastID map[string]uint64

	head     int64
	frontier frontier
	waiting  int
	// readied lists all nodes in the order they became ready. Apply returns parts
	// of it, which stay valid because it is only ever appended to.
	readied []*Node
	settled []*Node // work list of settle, empty between calls

	// failures holds failed nodes by ascending seq; handled ones at the front are dropped by Failure.
	failures []*Node
	// leaves holds succeeded nodes by ascending seq; those with children at the end are dropped by Result.
	leaves   []*Node
	final    *Node
	finished *pb.Finished
	paused   bool
	// pauseReason is why a node has the run pause, until it has.
	pauseReason string
	consumed    map[int64]struct{} // signals
	usage       Usage
	// childUsage is what the child runs of failed nodes had spent: after a retry they say it again, with the rest.
	childUsage map[*Node]*pb.Usage
	deaths     int

	// Times are those of the records, in microseconds since the Unix epoch.
	nowUs     int64 // of the record being applied
	claimedUs int64 // of the last claim
	lastUs    int64 // the latest since then
	activeUs  int64 // of all owners before the last claim
}

// Usage is what the nodes of a run have spent so far, failed ones included.
type Usage struct {
	// Nodes counts the nodes that have ended with a record.
	Nodes                     int64
	InputTokens, OutputTokens int64
	// CostNanoUSD is in billionths of a US dollar.
	CostNanoUSD int64
	// Unpriced counts what was spent at a price that is not known.
	Unpriced int64
}

// New returns the graph of a run that has no records: its root is ready.
// kind and input are those of the run.
func New(kind string, input *pb.Payload) *Graph {
	g := &Graph{
		nodes:    make(map[NodeID]*Node),
		reserved: make(map[NodeID]*Node),
		lastID:   make(map[string]uint64),
		consumed: make(map[int64]struct{}),

		childUsage: make(map[*Node]*pb.Usage),
	}
	root := &Node{ID: RootID, Kind: kind, Input: input}
	g.nodes[RootID] = root
	g.ready(root)
	return g
}

// Node returns the node with that id, nil if there is none.
func (g *Graph) Node(id NodeID) *Node { return g.nodes[id] }

// Len returns the number of nodes known, done or not.
func (g *Graph) Len() int { return len(g.nodes) }

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

// Attempts returns the failed attempts of a node, 0 for an unknown one.
func (g *Graph) Attempts(id NodeID) uint32 {
	if n := g.nodes[id]; n != nil {
		return n.Attempts
	}
	return 0
}

// Failure returns the failed node with the lowest seq whose failure no all-done
// node sees, directly or through skipped nodes; nil if there is none.
func (g *Graph) Failure() *Node {
	for len(g.failures) > 0 && g.failures[0].handled {
		g.failures = g.failures[1:] // once handled, handled for good
	}
	if len(g.failures) == 0 {
		return nil
	}
	return g.failures[0]
}

// Result returns the node whose output is the result of the run: the last
// succeeded one marked final, else the last succeeded one without children;
// nil if there is neither.
func (g *Graph) Result() *Node {
	if g.final != nil {
		return g.final
	}
	for len(g.leaves) > 0 {
		last := g.leaves[len(g.leaves)-1]
		if !last.parent {
			return last
		}
		g.leaves = g.leaves[:len(g.leaves)-1] // a parent is never a leaf again
	}
	return nil
}

// Failures returns all failed nodes whose failure no all-done node sees, by ascending seq.
func (g *Graph) Failures() []*Node {
	var out []*Node
	for _, n := range g.failures {
		if !n.handled {
			out = append(out, n)
		}
	}
	return out
}

// Paused reports that the last decision about the run was to pause it.
func (g *Graph) Paused() bool { return g.paused }

// PauseReason returns why a node that is done has the run pause, "" if none
// does or the log says that the run was paused since.
func (g *Graph) PauseReason() string { return g.pauseReason }

// Consumed reports that a node of the run has consumed that signal.
func (g *Graph) Consumed(signalID int64) bool {
	_, ok := g.consumed[signalID]
	return ok
}

// ActiveUs returns for how many microseconds the run has been owned at the
// given time. What a former owner did after its last record is not known and not counted.
func (g *Graph) ActiveUs(nowUs int64) int64 {
	if g.head == 0 {
		return 0
	}
	return g.activeUs + max(nowUs-g.claimedUs, 0)
}

// Finished returns the record that ended the run, nil while it has not finished.
func (g *Graph) Finished() *pb.Finished { return g.finished }

// DeathsWithoutProgress counts the claims after a replica's death since the
// last record of a node, of a failed attempt or of a resumption.
func (g *Graph) DeathsWithoutProgress() int { return g.deaths }

// Usage returns what the run has spent.
func (g *Graph) Usage() Usage { return g.usage }

func (u *Usage) add(spent *pb.Usage) {
	u.Nodes++
	u.InputTokens = addSaturated(u.InputTokens, spent.GetInputTokens())
	u.OutputTokens = addSaturated(u.OutputTokens, spent.GetOutputTokens())
	u.CostNanoUSD = addSaturated(u.CostNanoUSD, spent.GetCostNanoUsd())
	u.Unpriced = addSaturated(u.Unpriced, spent.GetUnpriced())
}

// spend counts what a node's record says it spent.
func (g *Graph) spend(n *Node, rec *pb.Node) {
	if before := g.childUsage[n]; before != nil {
		g.usage.InputTokens = max(g.usage.InputTokens-before.GetInputTokens(), 0)
		g.usage.OutputTokens = max(g.usage.OutputTokens-before.GetOutputTokens(), 0)
		g.usage.CostNanoUSD = max(g.usage.CostNanoUSD-before.GetCostNanoUsd(), 0)
		g.usage.Unpriced = max(g.usage.Unpriced-before.GetUnpriced(), 0)
		delete(g.childUsage, n)
	}
	if rec.GetChildRunId() != "" && n.Status().Failed() {
		g.childUsage[n] = rec.GetUsage()
	}
	g.usage.add(rec.GetUsage())
}

// addSaturated adds two amounts that are not negative.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
