package graph

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

const (
	// MaxIDBytes bounds a node id.
	MaxIDBytes = 256
	// MaxKindBytes bounds a kind.
	MaxKindBytes = 128
	// MaxSpawned bounds the nodes that one node spawns.
	MaxSpawned = 100_000
)

// Check says whether n may become the record that ends a ready node, before it
// is encoded and appended. On success the ids it spawns are reserved for that
// node until its record is applied, so that two records on their way to the log
// cannot both use one; checking the same node again replaces its reservation.
// The error is a *SpecError, and nothing is then reserved by this call.
func (g *Graph) Check(n *pb.Node) error {
	node, fault := g.checkNode(n)
	if fault != nil {
		return fault
	}
	g.reserve(node, n.GetSpawned())
	return nil
}

// find returns the node with that id if it is ready, else what is wrong.
func (g *Graph) find(id NodeID) (*Node, string) {
	n := g.nodes[id]
	if n == nil {
		return nil, "no such node"
	}
	switch status := n.Status(); {
	case status == StatusReady:
		return n, ""
	case n.Seq != 0:
		return nil, fmt.Sprintf("already done at seq %d (%s)", n.Seq, status)
	default:
		return nil, fmt.Sprintf("cannot have run, it is %s", status)
	}
}

// checkNode finds the ready node that rec ends, or the fault of rec.
func (g *Graph) checkNode(rec *pb.Node) (*Node, *SpecError) {
	id := NodeID(rec.GetId())
	n, fault := g.find(id)
	if fault != "" {
		return nil, &SpecError{NodeID: id, Fault: fault}
	}
	if fault := g.checkEnd(n, rec); fault != "" {
		return nil, &SpecError{NodeID: id, Fault: fault}
	}
	specs := rec.GetSpawned()
	if len(specs) > MaxSpawned {
		return nil, &SpecError{NodeID: id, Fault: fmt.Sprintf("spawns %d nodes; at most %d are allowed", len(specs), MaxSpawned)}
	}
	c := specChecker{graph: g, by: n, siblings: newSiblings(specs)}
	if err := c.check(); err != nil {
		return nil, err
	}
	return n, nil
}

// checkEnd says what is wrong with rec as the end of n, its spawned nodes apart.
func (g *Graph) checkEnd(n *Node, rec *pb.Node) string {
	if rec.GetKind() != n.Kind {
		return fmt.Sprintf("recorded as kind %s; it is of kind %s", quoteID(rec.GetKind()), quoteID(n.Kind))
	}
	if !sameParents(n, rec.GetParents()) {
		return "recorded with other parents than it was spawned with"
	}
	if _, ok := statusOf(rec.GetStatus()); !ok {
		return fmt.Sprintf("status %s does not end a node", rec.GetStatus())
	}
	if !ValidUsage(rec.GetUsage()) {
		return "usage is negative"
	}
	if g.Consumed(rec.GetSignalId()) {
		return fmt.Sprintf("consumes signal %d, which another node has consumed", rec.GetSignalId())
	}
	return ""
}

// ValidUsage reports whether a record may say that this was spent: nothing of it is negative.
func ValidUsage(u *pb.Usage) bool {
	return min(u.GetInputTokens(), u.GetOutputTokens(), u.GetCostNanoUsd(), u.GetUnpriced(), u.GetCachedTokens(), u.GetReasoningTokens()) >= 0
}

func sameParents(n *Node, ids []string) bool {
	if len(ids) != len(n.Parents) {
		return false
	}
	for i, p := range n.Parents {
		if string(p.ID) != ids[i] {
			return false
		}
	}
	return true
}

// KindFault says what is wrong with the name of a kind; empty if nothing is.
func KindFault(name string) string { return checkName("kind", name, MaxKindBytes) }

// checkName says what is wrong with an id or a kind. '#' separates an id from
// the pointer in a reference.
func checkName(what, s string, most int) string {
	switch {
	case s == "":
		return what + " is empty"
	case len(s) > most:
		return fmt.Sprintf("%s is %d bytes long; at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		return what + " is not valid UTF-8"
	}
	for _, r := range s {
		if r == '#' || unicode.IsControl(r) {
			return fmt.Sprintf("%s contains %q", what, r)
		}
	}
	return ""
}

// specChecker checks the nodes that one node spawns.
type specChecker struct {
	graph    *Graph
	by       *Node
	siblings siblings
	// forward: some parent comes later in the list than its child, so that a cycle is possible.
	forward bool
}

func (c *specChecker) check() *SpecError {
	for i, spec := range c.siblings.specs {
		if fault := c.checkSpec(i, spec); fault != "" {
			id := spec.GetId()
			if id == "" {
				return &SpecError{NodeID: c.by.ID, Fault: fmt.Sprintf("spawned node %d of kind %s: %s", i+1, quoteID(spec.GetKind()), fault)}
			}
			return &SpecError{NodeID: NodeID(id), Fault: fault}
		}
	}
	if c.forward {
		return c.siblings.checkCycle()
	}
	return nil
}

func (c *specChecker) checkSpec(i int, spec *pb.NodeSpec) string {
	id := spec.GetId()
	// The kind first: an id that NewID made has the faults of its kind.
	if fault := KindFault(spec.GetKind()); fault != "" {
		return fault
	}
	if fault := checkName("id", id, MaxIDBytes); fault != "" {
		return fault
	}
	if j := spec.GetJoin(); j != pb.Join_JOIN_ALL_SUCCEEDED && j != pb.Join_JOIN_ALL_DONE {
		return fmt.Sprintf("join %s is not known", j)
	}
	if c.siblings.find(id) != i {
		return fmt.Sprintf("id is used twice among the nodes that %s spawns", quoteID(c.by.ID))
	}
	if c.graph.nodes[NodeID(id)] != nil {
		return "id is taken by another node of the run"
	}
	if by := c.graph.reserved[NodeID(id)]; by != nil && by != c.by {
		return fmt.Sprintf("id is taken by a node that %s spawns", quoteID(by.ID))
	}
	return c.checkParents(i, spec.GetParents())
}

func (c *specChecker) checkParents(i int, ids []string) string {
	if len(ids) == 0 {
		return "has no parents"
	}
	if id, ok := repeated(ids); ok {
		return fmt.Sprintf("parent %s is named twice", quoteID(id))
	}
	for _, id := range ids {
		if id == string(c.by.ID) || c.graph.nodes[NodeID(id)] != nil {
			continue
		}
		switch at := c.siblings.find(id); {
		case at < 0:
			return fmt.Sprintf("parent %s does not exist", quoteID(id))
		case at == i:
			return "is its own parent"
		case at > i:
			c.forward = true
		}
	}
	return ""
}

// fewIDs is the length up to which comparing all pairs is cheaper than a map.
const fewIDs = 8

// repeated finds an id that occurs twice.
func repeated(ids []string) (string, bool) {
	if len(ids) <= fewIDs {
		for i, id := range ids {
			for _, other := range ids[:i] {
				if id == other {
					return id, true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, ok := seen[id]; ok {
			return id, true
		}
		seen[id] = struct{}{}
	}
	return "", false
}

// siblings are the nodes spawned by one record.
type siblings struct {
	specs []*pb.NodeSpec
	index map[string]int // nil when they are few
}

func newSiblings(specs []*pb.NodeSpec) siblings {
	s := siblings{specs: specs}
	if len(specs) > fewIDs {
		s.index = make(map[string]int, len(specs))
		for i, spec := range specs {
			if _, ok := s.index[spec.GetId()]; !ok {
				s.index[spec.GetId()] = i
			}
		}
	}
	return s
}

// find returns the first position of id, -1 if it is not there.
func (s siblings) find(id string) int {
	if s.index != nil {
		if i, ok := s.index[id]; ok {
			return i
		}
		return -1
	}
	for i, spec := range s.specs {
		if spec.GetId() == id {
			return i
		}
	}
	return -1
}

// checkCycle follows parents depth first, without recursion, and names a cycle.
func (s siblings) checkCycle() *SpecError {
	const unseen, open, closed = 0, 1, 2
	type step struct{ node, parent int }
	state := make([]uint8, len(s.specs))
	var path []step
	for start := range s.specs {
		if state[start] != unseen {
			continue
		}
		state[start] = open
		path = append(path, step{node: start})
		for len(path) > 0 {
			at := &path[len(path)-1]
			parents := s.specs[at.node].GetParents()
			if at.parent == len(parents) {
				state[at.node] = closed
				path = path[:len(path)-1]
				continue
			}
			next := s.find(parents[at.parent])
			at.parent++
			if next < 0 || state[next] == closed {
				continue
			}
			if state[next] == open {
				ids := make([]string, 0, len(path))
				for _, p := range path {
					ids = append(ids, s.specs[p.node].GetId())
				}
				return cycleError(ids, s.specs[next].GetId())
			}
			state[next] = open
			path = append(path, step{node: next})
		}
	}
	return nil
}

// cycleError names the cycle that path, child before parent, closes at id.
func cycleError(path []string, id string) *SpecError {
	const most = 8
	for path[0] != id {
		path = path[1:]
	}
	var words strings.Builder
	for i, p := range path {
		if i == most {
			words.WriteString("… after ")
			break
		}
		words.WriteString(quoteID(p) + " after ")
	}
	return &SpecError{NodeID: NodeID(id), Fault: "its parents form a cycle: " + words.String() + quoteID(id)}
}
