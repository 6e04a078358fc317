package graph

import (
	"fmt"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// readyAtOnce is for how many nodes that become ready there is room at a time.
const readyAtOnce = 64

// Apply adds the record at seq to the graph and returns the nodes that it made
// ready, in order; the caller may append to that slice and not change what is
// in it. It costs O(size of the record) amortised, whatever the size of the graph.
//
// The graph keeps the payloads and errors of rec, not copies: rec must not
// change afterwards. The error is a *CorruptError; the graph is then as before.
func (g *Graph) Apply(seq int64, rec *pb.Record) (ready []*Node, err error) {
	if fault := g.checkPosition(seq, rec); fault != "" {
		return nil, &CorruptError{Seq: seq, Found: fault}
	}
	if g.readied = g.readied[len(g.readied):]; cap(g.readied) == 0 {
		g.readied = make([]*Node, 0, readyAtOnce)
	}
	g.nowUs = timeOf(rec)
	switch body := rec.GetBody().(type) {
	case *pb.Record_Node:
		err = g.applyNode(seq, body.Node)
	case *pb.Record_Claim:
		g.applyClaim(body.Claim)
	case *pb.Record_AttemptFailed:
		err = g.applyAttemptFailed(seq, body.AttemptFailed)
	case *pb.Record_Started:
		err = g.applyStarted(seq, body.Started)
	case *pb.Record_Control:
		err = g.applyControl(seq, body.Control)
	case *pb.Record_Finished:
		g.finished = body.Finished
	default:
		err = &CorruptError{Seq: seq, Found: "a record of a kind that this build does not know"}
	}
	if err != nil {
		return nil, err
	}
	g.head = seq
	g.lastUs = max(g.lastUs, g.nowUs)
	return g.readied[:len(g.readied):len(g.readied)], nil
}

// checkPosition says what is wrong with a record being at seq, "" if nothing is.
func (g *Graph) checkPosition(seq int64, rec *pb.Record) string {
	switch {
	case seq != g.head+1:
		return fmt.Sprintf("found after seq %d; seqs must be contiguous from 1", g.head)
	case !g.mayFollow(rec):
		return fmt.Sprintf("a record after the run finished at seq %d", g.head)
	case seq == 1 && rec.GetClaim() == nil:
		return "the first record is not a claim"
	default:
		return ""
	}
}

// running finds the ready node that a record is about.
func (g *Graph) running(seq int64, what, id string) (*Node, error) {
	n, fault := g.find(NodeID(id))
	if fault != "" {
		return nil, &CorruptError{Seq: seq, Found: fmt.Sprintf("%s record of node %s: %s", what, quoteID(id), fault)}
	}
	return n, nil
}

func (g *Graph) applyAttemptFailed(seq int64, rec *pb.AttemptFailed) error {
	n, err := g.running(seq, "attempt failed", rec.GetNodeId())
	if err != nil {
		return err
	}
	if rec.GetAttempt() <= n.Attempts {
		return &CorruptError{Seq: seq, Found: fmt.Sprintf("attempt failed record of node %s: attempt %d follows attempt %d",
			quoteID(n.ID), rec.GetAttempt(), n.Attempts)}
	}
	if g.Consumed(rec.GetSignalId()) {
		return &CorruptError{Seq: seq, Found: fmt.Sprintf("attempt failed record of node %s consumes signal %d again", quoteID(n.ID), rec.GetSignalId())}
	}
	if !ValidUsage(rec.GetUsage()) {
		return &CorruptError{Seq: seq, Found: fmt.Sprintf("attempt failed record of node %s: usage is negative", quoteID(n.ID))}
	}
	n.attemptFailed(rec)
	g.consume(rec.GetSignalId())
	g.usage.Add(rec.GetUsage())
	if !lost(rec) { // a death alone is no progress
		g.progressed()
	}
	return nil
}

func (g *Graph) applyStarted(seq int64, rec *pb.Started) error {
	n, err := g.running(seq, "started", rec.GetNodeId())
	if err != nil {
		return err
	}
	n.attemptStarted(rec)
	return nil
}

func (g *Graph) applyNode(seq int64, rec *pb.Node) error {
	n, fault := g.checkNode(rec)
	if fault != nil {
		return &CorruptError{Seq: seq, Found: fault.Error(), Err: fault}
	}
	g.release(n)
	g.end(n, seq, rec)
	g.settle(n)
	g.spawn(n, rec.GetSpawned())
	g.results.ended(n)
	g.consume(rec.GetSignalId())
	g.spend(n, rec)
	g.progressed()
	g.wantPause(rec.GetPauseReason())
	return nil
}

// end writes how n ended. The status comes last: it is what other goroutines
// look at before they read the rest.
func (g *Graph) end(n *Node, seq int64, rec *pb.Node) {
	status, _ := statusOf(rec.GetStatus())
	n.Outcome.read(seq, rec)
	n.ended(rec)
	n.setStatus(status)
	g.frontier.remove(n)
}

// spawn adds the nodes of specs, which checkNode has found good.
func (g *Graph) spawn(by *Node, specs []*pb.NodeSpec) {
	if len(specs) == 0 {
		return
	}
	edges := 0
	for _, spec := range specs {
		edges += len(spec.GetParents())
	}
	added, parents := g.madeNodes.Take(len(specs)), g.madeEdges.Take(edges)[:0]
	g.add(added, specs)
	g.waiting += len(specs)
	// Parents may come later in the list: link all before any is ready or skipped.
	for i, spec := range specs {
		from := len(parents)
		for _, id := range spec.GetParents() {
			parents = append(parents, g.parentOf(by, NodeID(id)))
		}
		added[i].Parents = parents[from:len(parents):len(parents)]
		g.link(&added[i])
	}
	for i := range added {
		g.advance(&added[i])
		g.drain()
	}
}

// parentOf finds a parent; most are the node that spawns.
func (g *Graph) parentOf(by *Node, id NodeID) *Node {
	if id == by.ID {
		return by
	}
	return g.nodes[id]
}

// link makes n, which is new, known to its parents.
func (g *Graph) link(n *Node) {
	for _, p := range n.Parents {
		p.parent = true
		switch status := p.Status(); {
		case !status.Done():
			n.unsettled++
			p.addChild(n)
		case status != StatusSucceeded:
			n.troubled = true
			if n.Join == pb.Join_JOIN_ALL_DONE {
				g.handle(p)
			}
		}
	}
}

// settle tells the children of n that it is done, and theirs if that skips them.
func (g *Graph) settle(n *Node) {
	g.settled = append(g.settled, n)
	g.drain()
}

// drain works off settled. It is a list and not a recursion because skips run
// down chains of any length.
func (g *Graph) drain() {
	for len(g.settled) > 0 {
		last := len(g.settled) - 1
		n := g.settled[last]
		g.settled = g.settled[:last]
		succeeded := n.Status() == StatusSucceeded
		for _, c := range n.children {
			c.parentDone(succeeded)
			if !succeeded && (c.Join == pb.Join_JOIN_ALL_DONE || c.handled) {
				g.handle(n)
			}
			g.advance(c)
		}
		n.dropChildren()
	}
}

// advance makes a waiting node ready or skipped if its parents allow it.
func (g *Graph) advance(n *Node) {
	if n.Status() != StatusWaiting {
		return
	}
	switch {
	case n.troubled && n.Join == pb.Join_JOIN_ALL_SUCCEEDED:
		n.setStatus(StatusSkipped)
		g.waiting--
		g.settled = append(g.settled, n)
	case n.unsettled == 0:
		g.waiting--
		g.ready(n)
	}
}

func (g *Graph) ready(n *Node) {
	n.setStatus(StatusReady)
	n.ReadyUs = g.nowUs
	g.frontier.push(n)
	g.readied = append(g.readied, n)
}

// handle notes that an all-done node sees the failure of n; if n was skipped,
// the failures that caused it are seen too. Each node is handled once, so this
// costs O(edges) over the whole run.
func (g *Graph) handle(n *Node) {
	if n.handled {
		return
	}
	n.handled = true
	for todo := []*Node{n}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if last.Status() != StatusSkipped {
			continue
		}
		for _, p := range last.Parents {
			if s := p.Status(); !p.handled && s.Done() && s != StatusSucceeded {
				p.handled = true
				todo = append(todo, p)
			}
		}
	}
}
