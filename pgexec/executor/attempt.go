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
	// tx is to commit with the record; nil if the handler asked for none or failed.
	tx       pgx.Tx
	started  time.Time
	finished time.Time
	// aborted: the attempt did not start, or was cut off by a drain or a lost
	// run. It leaves no trace: the node runs again where the run goes on.
	aborted bool
}

// attempt runs in the node's own goroutine.
func (r *Run) attempt(launchCtx context.Context, n *graph.Node, kind *Kind, budget Budget) {
	a := &attempt{node: n, kind: kind}
	defer func() {
		if !r.mail.put(event{attempt: a}) {
			rollback(a.tx) // the run went on without this handler
		}
	}()
	if err := r.x.acquire(launchCtx, n.Kind); err != nil {
		a.aborted = true
		return
	}
	defer r.x.release(n.Kind)
	if atMostOnce(n, kind) != pb.UnknownOutcome_UNKNOWN_OUTCOME_UNSPECIFIED && !r.leaveMark(n) {
		a.aborted = true
		return
	}
	ctx, cancel := r.ctx, context.CancelFunc(func() {})
	if kind.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, kind.Timeout, errTimeout)
	}
	defer cancel()
	tx := &lazyTx{pool: r.x.Pool}
	a.started = r.x.NowFunc()
	result, err := r.call(ctx, kind, n, budget, tx)
	a.finished = r.x.NowFunc()
	if a.tx = tx.take(); err != nil {
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
	input, err := resolveInput(n)
	if err != nil {
		returned = true
		return nil, &Failure{Err: err, Code: "bad_ref", Permanent: true}
	}
	result, err = kind.HandlerFunc(ctx, &Call{
		RunID:     r.claimed.RunID,
		Node:      n,
		Input:     input,
		Attempt:   n.Attempts + 1,
		Budget:    budget,
		BytesFunc: func(p *pb.Payload) ([]byte, error) { return p.GetJson(), nil },
		TxFunc:    tx.get,

		HasKindFunc: func(name string) bool { return r.x.hasKind(ctx, name) },
	})
	if err != nil {
		failure = asFailure(ctx, err)
	}
	returned = true
	return result, failure
}

// resolveInput puts ancestors' outputs in the place of the input's references.
func resolveInput(n *graph.Node) (*pb.Payload, error) {
	if !n.InputRefs {
		return n.Input, nil
	}
	out, err := graph.Resolve(n.Input.GetJson(), func(id graph.NodeID) ([]byte, bool) {
		a := Ancestor(n, id)
		if a == nil || a.Output == nil {
			return nil, false
		}
		return a.Output.GetJson(), true
	})
	if err != nil {
		return nil, err
	}
	return &pb.Payload{Value: &pb.Payload_Json{Json: out}}, nil
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
