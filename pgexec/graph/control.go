package graph

import (
	"fmt"
	"slices"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// timeOf returns when a record was made, in microseconds since the Unix epoch; 0 if it does not say.
func timeOf(rec *pb.Record) int64 {
	switch body := rec.GetBody().(type) {
	case *pb.Record_Node:
		return body.Node.GetFinishedUs()
	case *pb.Record_Claim:
		return body.Claim.GetAtUs()
	case *pb.Record_AttemptFailed:
		return body.AttemptFailed.GetFinishedUs()
	case *pb.Record_Started:
		return body.Started.GetAtUs()
	case *pb.Record_Control:
		return body.Control.GetAtUs()
	case *pb.Record_Finished:
		return body.Finished.GetAtUs()
	}
	return 0
}

func (g *Graph) applyClaim(rec *pb.Claim) {
	if g.head > 0 {
		g.activeUs += max(g.lastUs-g.claimedUs, 0)
	} else {
		g.nodes[RootID].ReadyUs = g.nowUs
	}
	g.claimedUs, g.lastUs = g.nowUs, g.nowUs
	if rec.GetDeadReplicaId() != 0 {
		g.deaths++
	}
}

// mayFollowEnd: a run that did not succeed may be claimed again to be retried. A
// cancelled one is when the run it is a part of is retried.
func (g *Graph) mayFollowEnd(rec *pb.Record) bool {
	return g.finished.GetStatus() != pb.RunStatus_RUN_STATUS_SUCCEEDED &&
		(rec.GetClaim() != nil || rec.GetControl().GetKind() == pb.ControlKind_CONTROL_KIND_RETRIED)
}

func (g *Graph) applyControl(seq int64, rec *pb.Control) error {
	switch rec.GetKind() {
	case pb.ControlKind_CONTROL_KIND_PAUSED:
		g.paused, g.pauseReason = true, ""
	case pb.ControlKind_CONTROL_KIND_RESUMED:
		g.paused, g.deaths = false, 0
	case pb.ControlKind_CONTROL_KIND_RETRIED:
		return g.applyRetried(seq, rec.GetNodeIds())
	}
	return nil
}

// applyRetried makes failed nodes ready again, and those waiting again that
// were skipped because of them. What they recorded stays in the log; nothing
// that succeeded runs again. It costs O(size of the graph).
func (g *Graph) applyRetried(seq int64, ids []string) error {
	failed := make(map[*Node]bool)
	for _, n := range g.Failures() {
		failed[n] = true
	}
	revived := make([]*Node, len(ids))
	for i, id := range ids {
		n := g.nodes[NodeID(id)]
		if n == nil || !failed[n] {
			return &CorruptError{Seq: seq, Found: fmt.Sprintf("retried record names node %s, whose failure did not end the run", quoteID(id))}
		}
		delete(failed, n)
		revived[i] = n
	}
	g.finished = nil
	for _, n := range revived {
		n.Output, n.Err, n.Seq, n.Final = nil, nil, 0, false
		n.Attempts, n.StartedAttempt, n.NotBefore = 0, 0, 0
		g.ready(n)
	}
	g.failures = slices.DeleteFunc(g.failures, func(n *Node) bool { return !n.Status().Done() })
	g.relink()
	return nil
}

// relink builds anew what is known of nodes that wait, after some of their
// parents went back from done: skipped nodes wait again, and are skipped again
// at once if another parent still did not succeed.
func (g *Graph) relink() {
	var waiting []*Node
	for _, n := range g.nodes {
		switch status := n.Status(); {
		case status == StatusSkipped:
			n.setStatus(StatusWaiting)
			g.waiting++
			waiting = append(waiting, n)
		case status == StatusWaiting:
			waiting = append(waiting, n)
		}
		n.children = nil
	}
	for _, n := range waiting {
		n.unsettled, n.troubled = 0, false
		g.link(n)
	}
	for _, n := range waiting {
		g.advance(n)
		g.drain()
	}
}
