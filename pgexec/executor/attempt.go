package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/graph"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

var errTimeout = errors.New("the attempt's time is over")

// attempt is one call of a handler and what came of it.
type attempt struct {
	node    *graph.Node
	kind    *Kind
	result  *Result
	failure *Failure
	// record is the node's, once it has been made of the result.
	record *pb.Node
	usage  *pb.Usage
	// place is the node's under a fleet-wide limit; nil if it has none.
	place *place
	// tx is to commit with the record; nil if the handler asked for none or failed.
	tx       pgx.Tx
	started  time.Time
	finished time.Time
	// aborted: the attempt did not start, or was cut off by a drain or a lost
	// run. It leaves no trace: the node runs again where the run goes on.
	aborted bool
}

// attempt runs in the node's own goroutine.
// What it holds it gives back when the owner has its result, who looks at the limits before the next one begins.
func (r *Run) attempt(a *attempt, budget Budget) {
	n, kind := a.node, a.kind
	defer r.x.release(n.Kind)
	defer a.place.release()
	defer func() {
		if !r.mail.put(event{attempt: a}) {
			rollback(a.tx) // the run went on without this handler
		}
	}()
	if atMostOnce(n, kind) != pb.UnknownOutcome_UNKNOWN_OUTCOME_UNSPECIFIED && !r.leaveMark(n) {
		a.aborted = true
		return
	}
	a.place.use()
	ctx, cancel := r.ctx, context.CancelFunc(func() {})
	if timeout := timeoutOf(n, kind); timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
	}
	defer cancel()
	tx := &lazyTx{pool: r.x.Pool}
	a.started = r.x.NowFunc()
	result, err := r.call(ctx, kind, n, budget, tx)
	a.finished = r.x.NowFunc()
	if result != nil {
		a.usage = result.Usage
	}
	if err == nil {
		if unkept := r.keepResult(result); unkept != nil {
			err = asFailure(r.ctx, unkept)
		}
	}
	if a.tx = tx.take(); err != nil {
		err = afterTx(a.tx, err)
		rollback(a.tx)
		a.tx = nil
	}
	switch {
	case err == nil:
		a.result = result
	case r.ctx.Err() != nil:
		a.aborted = true
	default:
		a.failure = err
	}
}

func timeoutOf(n *graph.Node, kind *Kind) time.Duration {
	if n.TimeoutUs > 0 {
		return time.Duration(n.TimeoutUs) * time.Microsecond
	}
	return kind.Timeout
}

// call resolves the input and calls the handler; a panic or a runtime.Goexit, its error's included, comes back as a failure.
func (r *Run) call(ctx context.Context, kind *Kind, n *graph.Node, budget Budget, tx *lazyTx) (result *Result, failure *Failure) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			failure = &Failure{Err: fmt.Errorf("panic: %v", p), Code: "panic", Stack: string(debug.Stack())}
			return
		}
		failure = &Failure{Err: errors.New("the handler ended its goroutine"), Code: "panic"}
	}()
	read := func(p *pb.Payload) ([]byte, error) { return r.read(ctx, p) }
	input, err := resolveInput(n, read)
	if err != nil {
		failure, returned = asFailure(ctx, err), true
		return nil, failure
	}
	result, err = kind.HandlerFunc(ctx, &Call{
		RunID:     r.claimed.RunID,
		Node:      n,
		Input:     &pb.Payload{Value: &pb.Payload_Json{Json: input}},
		Attempt:   n.Attempts + 1,
		Budget:    budget,
		BytesFunc: read,
		Blobs:     r.x.Blobs,
		TxFunc:    tx.get,

		HasKindFunc: func(name string) bool { return r.x.hasKind(ctx, name) },
	})
	if err != nil {
		failure = asFailure(ctx, err)
	}
	returned = true
	return result, failure
}

// Ancestor finds the ancestor of n with that id, or nil.
func Ancestor(n *graph.Node, id graph.NodeID) *graph.Node {
	seen := make(map[*graph.Node]struct{})
	frontier := []*graph.Node{n}
	for len(frontier) > 0 {
		next := frontier[0]
		frontier = frontier[1:]
		for _, p := range next.Parents {
			if !p.Status().Done() {
				continue // a skipped node's parent that still runs: not ours to read yet
			}
			if p.ID == id {
				return p
			}
			if _, ok := seen[p]; !ok {
				seen[p] = struct{}{}
				frontier = append(frontier, p)
			}
		}
	}
	return nil
}
