package executor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// finishAttempt turns what a handler returned into the record it leaves.
func (r *Run) finishAttempt(a *attempt) {
	switch {
	case r.stop.lost != nil:
		go rollback(a.tx)
	case a.aborted:
		r.ready.enqueue(a.node)
	case a.failure == nil:
		r.recordSuccess(a)
	default:
		r.recordFailure(a)
	}
}

// recordSuccess appends the node's record. What cannot be recorded (a successor that makes no sense, more than fits
// although its payloads are in blobs) is that node's permanent error.
func (r *Run) recordSuccess(a *attempt) {
	if a.record == nil {
		a.record = r.successRecord(a)
	}
	if err := r.g.Check(a.record); err != nil {
		r.recordPermanent(a, &Failure{Err: err, Code: "bad_successor"})
		return
	}
	rec, send := &pb.Record{Body: &pb.Record_Node{Node: a.record}}, r.append
	if a.tx != nil {
		send = func(rec *pb.Record) error { return r.appendTx(a, rec) }
	}
	err := send(rec)
	if err == nil {
		return
	}
	if places := r.toFit(a.record, err); places != nil {
		r.flight.attempts++
		go r.fitAttempt(a, places)
		return
	}
	r.recordPermanent(a, &Failure{Err: err, Code: "record_too_large"})
}

func (r *Run) successRecord(a *attempt) *pb.Node {
	node := r.nodeRecord(a)
	node.Status = pb.NodeStatus_NODE_STATUS_SUCCEEDED
	node.Output = a.result.Output
	node.Final = a.result.Final
	node.Usage = a.usage
	node.PauseReason = truncate(a.result.PauseReason, maxErrorMessage)
	node.Spawned = r.specs(a.node, a.result.Spawns)
	return node
}

// txFailed records as a failed attempt that the transaction of a node's record
// did not commit. What the database refused for a reason in the data it would refuse again, and what a handler committed
// itself it would do again.
func (r *Run) txFailed(a *attempt, err error) {
	a.failure = &Failure{Err: err, Code: "transaction", Permanent: refusesData(err) || errors.Is(err, runlog.ErrTxEnded)}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		a.failure.Code = pg.Code
	}
	r.recordFailure(a)
}

// refusesData: the database refused what it was given for what it is, and will again.
func refusesData(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "54"))
}

func (r *Run) recordFailure(a *attempt) {
	policy, made := a.kind.Retry.override(a.node.Retry), a.node.Attempts+1
	failed := made - a.node.Lost
	if a.failure.Permanent || int(failed) >= policy.MaxAttempts || neverTwice(a.node, a.kind) {
		r.recordPermanent(a, a.failure)
		return
	}
	wait := policy.Backoff(failed)
	if a.failure.RetryAfter > 0 {
		wait = min(a.failure.RetryAfter, maxRetryAfter)
	}
	r.log.Info("attempt failed", "node_id", a.node.ID, "kind", a.node.Kind, "attempt", made, "retry_in", wait, "error", a.failure)
	r.mustAppend(&pb.Record{Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{
		NodeId:      string(a.node.ID),
		Attempt:     made,
		Error:       a.failure.proto(false),
		NotBeforeUs: r.x.NowFunc().Add(wait).UnixMicro(),
		StartedUs:   micros(a.started),
		FinishedUs:  micros(a.finished),
		ReplicaId:   int32(r.x.ReplicaID),
		Usage:       a.spent(),
	}}})
}

func (r *Run) recordPermanent(a *attempt, f *Failure) {
	if a.tx != nil {
		go rollback(a.tx)
		a.tx = nil
	}
	r.log.Info("node failed", "node_id", a.node.ID, "kind", a.node.Kind, "attempt", a.node.Attempts+1, "error", f)
	node := r.nodeRecord(a)
	node.Status = pb.NodeStatus_NODE_STATUS_FAILED
	node.Error, node.Usage = f.proto(true), a.spent()
	r.mustAppend(&pb.Record{Body: &pb.Record_Node{Node: node}})
}

// spent is what a failed attempt has used, if that can be.
func (a *attempt) spent() *pb.Usage {
	if graph.ValidUsage(a.usage) {
		return a.usage
	}
	return nil
}

// mustAppend appends a record that is small, but for the parents of a node that has very many.
func (r *Run) mustAppend(rec *pb.Record) {
	if err := r.append(rec); err != nil {
		r.refused(err)
	}
}

func (r *Run) nodeRecord(a *attempt) *pb.Node {
	n := a.node
	node := &pb.Node{
		Id:         string(n.ID),
		Kind:       n.Kind,
		Attempt:    n.Attempts + 1,
		StartedUs:  micros(a.started),
		FinishedUs: micros(a.finished),
		ReplicaId:  int32(r.x.ReplicaID),
	}
	for _, p := range n.Parents {
		node.Parents = append(node.Parents, string(p.ID))
	}
	return node
}

// specs gives every successor its id and its parents; the default parent is the spawning node.
func (r *Run) specs(n *graph.Node, spawns []Spawn) []*pb.NodeSpec {
	ids := make([]graph.NodeID, len(spawns))
	for i, s := range spawns {
		if ids[i] = s.ID; s.ID == "" {
			ids[i] = r.g.NewID(s.Kind)
		}
	}
	specs := make([]*pb.NodeSpec, len(spawns))
	for i, s := range spawns {
		spec := &pb.NodeSpec{
			Id: string(ids[i]), Kind: s.Kind, Join: s.Join, Input: s.Input, InputRefs: s.InputRefs, Retry: s.Retry, AtMostOnce: s.AtMostOnce,
			TimeoutUs: s.Timeout.Microseconds(), OwnLimits: s.OwnLimits,
		}
		for _, p := range s.Parents {
			id := p.ID
			if id == "" {
				id = ids[p.Index]
			}
			spec.Parents = append(spec.Parents, string(id))
		}
		if len(spec.Parents) == 0 {
			spec.Parents = []string{string(n.ID)}
		}
		specs[i] = spec
	}
	return specs
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// joinIDs lists at most n ids for a person to read.
func joinIDs(ids []graph.NodeID, n int) string {
	var b strings.Builder
	for i, id := range ids {
		if i == n {
			fmt.Fprintf(&b, " and %d more", len(ids)-n)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(id))
	}
	return b.String()
}
