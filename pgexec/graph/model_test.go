package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// observe writes down all that can be seen of a graph.
func observe(g *Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b, "head %d len %d done %v frontier %v failure %q result %q finished %v paused %v active %d deaths %v usage %+v\n",
		g.Head(), g.Len(), g.Done(), ids(g.Frontier()), idOf(g.Failure()), idOf(g.Result()), g.Finished(), g.Paused(), g.ActiveUs(1e9), g.DeathsWithoutProgress(), g.Usage())
	for _, id := range slices.Sorted(maps.Keys(g.nodes)) {
		n := g.Node(id)
		fmt.Fprintf(&b, "%s: kind %q join %s input %s refs %v parents %v status %s output %s err %v seq %d final %v attempts %d started %d not before %d ready %d\n",
			n.ID, n.Kind, n.Join, n.Input.GetJson(), n.InputRefs, ids(n.Parents), n.Status(),
			n.Output.GetJson(), n.Err.GetMessage(), n.Seq, n.Final, n.Attempts, n.StartedAttempt, n.NotBefore, n.ReadyUs)
	}
	return b.String()
}

// model works everything out anew from the set of records, by the words of the
// specification and without a thought for cost.
type model struct {
	specs map[string]*pb.NodeSpec
	ends  map[string]*pb.Node
	seqs  map[string]int64
	// records are all ends, those of nodes that were retried since among them.
	records []*pb.Node
}

func newModel(rootKind string, log []*pb.Record) *model {
	m := &model{
		specs: map[string]*pb.NodeSpec{"root": {Id: "root", Kind: rootKind}},
		ends:  map[string]*pb.Node{},
		seqs:  map[string]int64{},
	}
	for i, rec := range log {
		for _, id := range rec.GetControl().GetNodeIds() {
			delete(m.ends, id)
		}
		n := rec.GetNode()
		if n == nil {
			continue
		}
		m.records = append(m.records, n)
		m.ends[n.GetId()] = n
		m.seqs[n.GetId()] = int64(i + 1)
		for _, s := range n.GetSpawned() {
			m.specs[s.GetId()] = s
		}
	}
	return m
}

// statuses are the status of every node, found by repetition until nothing changes.
func (m *model) statuses() map[string]Status {
	status := map[string]Status{}
	for id := range m.specs {
		status[id] = StatusWaiting
	}
	for changed := true; changed; {
		changed = false
		for id, s := range m.specs {
			if now := m.status(s, status); now != status[id] {
				status[id] = now
				changed = true
			}
		}
	}
	return status
}

func (m *model) status(s *pb.NodeSpec, status map[string]Status) Status {
	if end := m.ends[s.GetId()]; end != nil {
		return map[pb.NodeStatus]Status{
			pb.NodeStatus_NODE_STATUS_SUCCEEDED:       StatusSucceeded,
			pb.NodeStatus_NODE_STATUS_FAILED:          StatusFailed,
			pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN: StatusOutcomeUnknown,
			pb.NodeStatus_NODE_STATUS_CANCELLED:       StatusCancelled,
		}[end.GetStatus()]
	}
	allDone, allSucceeded, someBad := true, true, false
	for _, p := range s.GetParents() {
		switch status[p] {
		case StatusWaiting, StatusReady:
			allDone, allSucceeded = false, false
		case StatusSucceeded:
		default:
			allSucceeded, someBad = false, true
		}
	}
	switch {
	case s.GetJoin() == pb.Join_JOIN_ALL_SUCCEEDED && someBad:
		return StatusSkipped
	case s.GetJoin() == pb.Join_JOIN_ALL_SUCCEEDED && allSucceeded, s.GetJoin() == pb.Join_JOIN_ALL_DONE && allDone:
		return StatusReady
	default:
		return StatusWaiting
	}
}

func (m *model) children(id string) []*pb.NodeSpec {
	var out []*pb.NodeSpec
	for _, s := range m.specs {
		if slices.Contains(s.GetParents(), id) {
			out = append(out, s)
		}
	}
	return out
}

func (m *model) handled(id string, status map[string]Status) bool {
	for _, c := range m.children(id) {
		if c.GetJoin() == pb.Join_JOIN_ALL_DONE || status[c.GetId()] == StatusSkipped && m.handled(c.GetId(), status) {
			return true
		}
	}
	return false
}

// bySeq lists the ended nodes that are wanted by ascending seq.
func (m *model) bySeq(want func(*pb.Node) bool) []string {
	var out []string
	for id, end := range m.ends {
		if want(end) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(m.seqs[a], m.seqs[b]) })
	return out
}

func (m *model) failure(status map[string]Status) string {
	for _, id := range m.bySeq(func(n *pb.Node) bool { return n.GetStatus() != pb.NodeStatus_NODE_STATUS_SUCCEEDED }) {
		if !m.handled(id, status) {
			return id
		}
	}
	return ""
}

func (m *model) result() string {
	succeeded := func(n *pb.Node) bool { return n.GetStatus() == pb.NodeStatus_NODE_STATUS_SUCCEEDED }
	if final := m.bySeq(func(n *pb.Node) bool { return succeeded(n) && n.GetFinal() }); len(final) > 0 {
		return final[len(final)-1]
	}
	leaves := m.bySeq(func(n *pb.Node) bool { return succeeded(n) && len(m.children(n.GetId())) == 0 })
	if len(leaves) > 0 {
		return leaves[len(leaves)-1]
	}
	return ""
}

func (m *model) usage() Usage {
	var u Usage
	for _, end := range m.records {
		u.Nodes++
		u.InputTokens += end.GetUsage().GetInputTokens()
		u.OutputTokens += end.GetUsage().GetOutputTokens()
		u.CostNanoUSD += end.GetUsage().GetCostNanoUsd()
	}
	return u
}
