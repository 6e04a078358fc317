package graph

import (
	"fmt"
	"slices"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// decisions are what the log says of the run as a whole.
type decisions struct {
	finished *pb.Finished
	paused   bool
	// pauseReason is why a node has the run pause, until it has.
	pauseReason string
	// deaths are those of replicas that had the run, without progress in between.
	deaths []int32
	// claims counts those without progress since.
	claims int
}

// Finished returns the record that ended the run, nil while it has not finished.
func (d *decisions) Finished() *pb.Finished { return d.finished }

// Paused reports that the last decision about the run was to pause it.
func (d *decisions) Paused() bool { return d.paused }

// PauseReason returns why a node that is done has the run pause, "" if none
// does or the log says that the run was paused since.
func (d *decisions) PauseReason() string { return d.pauseReason }

// DeathsWithoutProgress returns the replicas whose death was followed by a claim since
// the last record of a node, of a failed attempt or of a resumption.
func (d *decisions) DeathsWithoutProgress() []int32 { return slices.Clone(d.deaths) }

// ClaimsWithoutProgress returns how many claims there were since the last record of a node, of a failed attempt, of a
// resumption or of a retry.
func (d *decisions) ClaimsWithoutProgress() int { return d.claims }

// progressed takes in the record of a node that ended, or of an attempt that failed.
func (d *decisions) progressed() { d.deaths, d.claims = nil, 0 }

// wantPause has the run pause for what a node's record says, if it says so.
func (d *decisions) wantPause(reason string) {
	if reason != "" {
		d.pauseReason = reason
	}
}

// pausedNow and resumed take in what was decided.
func (d *decisions) pausedNow() { d.paused, d.pauseReason = true, "" }

func (d *decisions) resumed() {
	d.paused = false
	d.progressed()
}

// mayFollow reports whether a record may follow the end of the run. One that did not succeed may be
// claimed again to be retried. A cancelled one is when the run it is a part of is retried.
func (d *decisions) mayFollow(rec *pb.Record) bool {
	return d.finished == nil || d.finished.GetStatus() != pb.RunStatus_RUN_STATUS_SUCCEEDED &&
		(rec.GetClaim() != nil || rec.GetControl().GetKind() == pb.ControlKind_CONTROL_KIND_RETRIED)
}

func (g *Graph) applyClaim(rec *pb.Claim) {
	if g.head == 0 {
		g.nodes[RootID].ReadyUs = g.nowUs
	}
	g.claimed()
	g.claims++
	if dead := rec.GetDeadReplicaId(); dead != 0 {
		g.deaths = append(g.deaths, dead)
	}
}

func (g *Graph) applyControl(seq int64, rec *pb.Control) error {
	switch rec.GetKind() {
	case pb.ControlKind_CONTROL_KIND_PAUSED:
		g.pausedNow()
	case pb.ControlKind_CONTROL_KIND_RESUMED:
		g.resumed()
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
	g.progressed()
	for _, n := range revived {
		n.Outcome = Outcome{}
		n.startOver()
		g.ready(n)
	}
	g.revived()
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
		n.unlink()
		g.link(n)
	}
	for _, n := range waiting {
		g.advance(n)
		g.drain()
	}
}
