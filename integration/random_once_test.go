package integration

import (
	"errors"
	"fmt"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/graph"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// startMark is the mark in the log that the handler of an at-most-once node may have been called.
type startMark struct {
	attempt uint32
	claims  int // of the run, at that time
}

func (r *runCheck) start(seq int64, s *pb.Started) {
	r.starts[s.NodeId]++
	n, ok := r.model.nodes[s.NodeId]
	switch {
	case !ok || n.spawn.Once == 0:
		r.errorf("record %d: node %s may run more than once", seq, s.NodeId)
	case s.Attempt != r.attempts[s.NodeId]+1 || r.started[s.NodeId].attempt >= s.Attempt:
		r.errorf("record %d: node %s starts attempt %d after %d that failed; before, attempt %d was started",
			seq, s.NodeId, s.Attempt, r.attempts[s.NodeId], r.started[s.NodeId].attempt)
	}
	r.started[s.NodeId] = startMark{attempt: s.Attempt, claims: len(r.claims)}
}

// inDoubt: an attempt of the node was started, has no end, and its owner has lost the run.
func (r *runCheck) inDoubt(id string) bool {
	mark, ok := r.started[id]
	return ok && mark.attempt == r.attempts[id]+1 && mark.claims < len(r.claims)
}

// checkRunsAgain: an attempt in doubt is followed by another one only by policy, or when somebody says so.
func (r *runCheck) checkRunsAgain(sp *spawn, a *pb.AttemptFailed, inDoubt bool) error {
	r.tree.tally.doubts++
	if !inDoubt || a.Error.GetCode() != graph.CodeOutcomeUnknown {
		return fmt.Errorf("in doubt: %v, code %s", inDoubt, a.Error.GetCode())
	}
	if sp.Once == pgexec.UnknownRunsAgain && a.SignalId == 0 {
		return nil
	}
	if sp.Once != pgexec.UnknownAsks || a.SignalId == 0 {
		return errors.New("it was to run no more")
	}
	sent, err := r.consume(a.SignalId, sp.ID, outcomeName)
	if err == nil && !sent.RunAgain {
		err = fmt.Errorf("signal %d says %s", a.SignalId, sent.payload())
	}
	return err
}

// checkOnce compares how an at-most-once node ended with what it may end by: its
// handler, which is left to the caller, or the policy for an unknown outcome.
func (r *runCheck) checkOnce(sp *spawn, n *pb.Node, got ending) (settled bool, err error) {
	unknown := n.Status == pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN
	inDoubt := r.inDoubt(sp.ID)
	switch {
	case unknown && sp.Once == pgexec.UnknownFails && inDoubt:
		r.tree.tally.doubts++
		return true, nil
	case n.SignalId != 0 && sp.Once == pgexec.UnknownAsks && inDoubt:
		r.tree.tally.doubts++
		sent, err := r.consume(n.SignalId, sp.ID, outcomeName)
		if want := (ending{succeeded, fmt.Sprint(sent.Payload)}); err == nil && (sent.RunAgain || got != want) {
			err = fmt.Errorf("signal %d says %s", n.SignalId, sent.payload())
		}
		return true, err
	case unknown, n.SignalId != 0, inDoubt:
		return true, fmt.Errorf("in doubt: %v, signal %d", inDoubt, n.SignalId)
	case r.started[sp.ID].attempt != n.Attempt:
		return true, fmt.Errorf("attempt %d was started", r.started[sp.ID].attempt)
	}
	return false, nil
}

// checkStarts: an at-most-once node is executed no more often than the log says that it may be (G6).
func (r *runCheck) checkStarts() {
	for id, n := range r.model.nodes {
		if executions := len(r.tree.executions[r.id][id]); n.spawn.Once != 0 && executions > r.starts[id] {
			r.errorf("node %s was executed %d times, and is said to have been started %d times", id, executions, r.starts[id])
		}
	}
}
