package executor

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// SignalOutcome is the name of the signal that settles an unknown outcome; it
// is addressed to the node.
const SignalOutcome = "outcome"

// atMostOnce returns what becomes of the node when it was in flight at a crash;
// unspecified for a node that simply runs again.
func atMostOnce(n *graph.Node, kind *Kind) pb.UnknownOutcome {
	if n.AtMostOnce != pb.UnknownOutcome_UNKNOWN_OUTCOME_UNSPECIFIED {
		return n.AtMostOnce
	}
	return kind.AtMostOnce
}

// neverTwice: an attempt of the node is never followed by another one, unless a person says so.
func neverTwice(n *graph.Node, kind *Kind) bool {
	once := atMostOnce(n, kind)
	return once == pb.UnknownOutcome_UNKNOWN_OUTCOME_FAIL || once == pb.UnknownOutcome_UNKNOWN_OUTCOME_ASK
}

// mark is the request of an attempt to leave its mark in the log.
type mark struct {
	node *graph.Node
	// done says whether the mark is there and the handler may be called.
	done chan bool
}

// leaveMark records, before the handler of an at-most-once node is called, that
// it will be. It is called by the attempt's goroutine.
func (r *Run) leaveMark(n *graph.Node) bool {
	m := &mark{node: n, done: make(chan bool, 1)}
	if !r.mail.put(event{mark: m}) {
		return false
	}
	select {
	case ok := <-m.done:
		return ok
	case <-r.ctx.Done():
		return false
	}
}

// appendMark appends an attempt's mark, unless the run is to stop.
func (r *Run) appendMark(m *mark) {
	if r.stopping() {
		m.done <- false
		return
	}
	r.flight.mark(m)
	r.mustAppend(&pb.Record{Body: &pb.Record_Started{Started: &pb.Started{
		NodeId:    string(m.node.ID),
		Attempt:   m.node.Attempts + 1,
		AtUs:      r.x.NowFunc().UnixMicro(),
		ReplicaId: int32(r.x.ReplicaID),
	}}})
}

// inDoubt: the log has the mark of an attempt and not its end.
func inDoubt(n *graph.Node, kind *Kind) bool {
	return atMostOnce(n, kind) != pb.UnknownOutcome_UNKNOWN_OUTCOME_UNSPECIFIED && n.StartedAttempt > n.Attempts
}

var errInDoubt = errors.New("the replica that ran this node stopped in the middle of it: whether it took effect is not known")

// doubt deals by its policy with a node in doubt, of which f says why.
func (r *Run) doubt(n *graph.Node, kind *Kind, f *Failure) {
	switch atMostOnce(n, kind) {
	case pb.UnknownOutcome_UNKNOWN_OUTCOME_ASK:
		w := r.waiting.waits[n] // for its task
		if w == nil {
			w = &wait{node: n}
			r.waiting.waits[n] = w
		}
		w.asks, w.signal, w.sinceUs = true, signalInput{Name: SignalOutcome}, n.StartedUs
		if w.task != nil {
			w.sinceUs = w.task.takenUs
		}
		r.meet(w)
	case pb.UnknownOutcome_UNKNOWN_OUTCOME_RUN_AGAIN:
		r.runAgain(n, 0)
	default:
		if w := r.waiting.waits[n]; w != nil {
			w.ending = true
			r.waiting.uncount(w)
		}
		node := r.nodeRecord(&attempt{node: n, finished: r.x.NowFunc()})
		node.Status, node.Error = pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN, f.proto(true)
		r.log.Warn("node failed", "node_id", n.ID, "kind", n.Kind, "error", f)
		r.mustAppend(&pb.Record{Body: &pb.Record_Node{Node: node}})
	}
}

// runAgain ends the attempt in doubt, and the node is ready for another one.
func (r *Run) runAgain(n *graph.Node, signalID int64) {
	f := &Failure{Err: errInDoubt, Code: graph.CodeOutcomeUnknown}
	now := r.x.NowFunc().UnixMicro()
	r.mustAppend(&pb.Record{Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{
		NodeId:      string(n.ID),
		Attempt:     max(n.StartedAttempt, n.Attempts+1),
		Error:       f.proto(false),
		NotBeforeUs: now,
		FinishedUs:  now,
		ReplicaId:   int32(r.x.ReplicaID),
		SignalId:    signalID,
	}}})
}

// outcomeSignal is the payload of the signal that settles an unknown outcome: one of the three.
type outcomeSignal struct {
	Output   json.RawMessage `json:"output"`
	Error    *string         `json:"error"`
	RunAgain bool            `json:"run_again"`
}

// settleDoubt does what a person has found out or decided.
func (r *Run) settleDoubt(w *wait, s wake.Signal) {
	var out outcomeSignal
	err := strict(s.Payload, &out)
	switch {
	case err == nil && out.Output != nil && out.Error == nil && !out.RunAgain:
		r.endWait(w, &pb.Node{SignalId: s.ID, Output: &pb.Payload{Value: &pb.Payload_Json{Json: out.Output}}})
	case err == nil && out.Output == nil && out.Error != nil && !out.RunAgain:
		r.failWaitAs(w, &pb.Node{SignalId: s.ID}, &Failure{Err: errors.New(*out.Error), Code: graph.CodeOutcomeUnknown})
	case err == nil && out.Output == nil && out.Error == nil && out.RunAgain:
		w.ending = true
		r.runAgain(w.node, s.ID)
	default:
		r.failWaitAs(w, &pb.Node{SignalId: s.ID}, &Failure{
			Err:  fmt.Errorf(`signal %q holds %.200s; want one of {"output": …}, {"error": "…"}, {"run_again": true}`, SignalOutcome, s.Payload),
			Code: "bad_outcome",
		})
	}
}
