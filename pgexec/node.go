package pgexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/executor"
	"github.com/pgexec/runtime/pgexec/graph"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Node is one attempt of a node, as its handler sees it. Its methods may be
// called from several goroutines until the handler returns.
type Node struct {
	call *executor.Call

	mu       sync.Mutex
	spawns   []executor.Spawn
	spawnErr error
	final    bool
	pause    string
	usage    *pb.Usage
}

// RunID returns the run the node belongs to.
func (n *Node) RunID() RunID { return n.call.RunID }

// ID returns the node's id, unique within its run.
func (n *Node) ID() NodeID { return n.call.Node.ID }

// Kind returns the node's kind.
func (n *Node) Kind() string { return n.call.Node.Kind }

// Attempt returns the number of this attempt, from 1. Attempts cut off by a
// crash or a drain are not counted.
func (n *Node) Attempt() int { return int(n.call.Attempt) }

// IdempotencyKey returns "run_id/node_id": the same on every attempt, on
// whatever replica. Give it to every service that can deduplicate by it.
func (n *Node) IdempotencyKey() string {
	return n.call.RunID.String() + "/" + string(n.call.Node.ID)
}

// HasKind reports whether nodes of that kind can be done: by this replica, by programs outside, or as a wait. While the
// database cannot be asked what programs outside do, it says true of what this replica does not know.
func (n *Node) HasKind(name string) bool { return n.call.HasKindFunc(name) }

// Parents returns the nodes this one was waiting for, in the order of its spec.
func (n *Node) Parents() []*Ancestor { return ancestors(n.call, n.call.Node.Parents) }

// Ancestor returns the ancestor with that id, however far up.
func (n *Node) Ancestor(id NodeID) (*Ancestor, bool) {
	a := executor.Ancestor(n.call.Node, id)
	if a == nil {
		return nil, false
	}
	return &Ancestor{node: a, call: n.call}, true
}

// Final marks this node's output as the run's result, whatever nodes come
// after it. Without it the result is the output of the last leaf.
func (n *Node) Final() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.final = true
}

// Pause has the run pause when this node is recorded and those in flight are:
// the reason is shown to people, who resume it (G7). It goes on with this node's
// successors then. An empty reason pauses nothing; at most 16 KiB of it are kept.
func (n *Node) Pause(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pause = reason
}

// Tx begins a transaction that commits with this node's record, or returns the
// one begun before: what the handler does in it and the record are there
// together or not at all (G6), so that its effects need no idempotency key. It
// commits when the handler returns without an error; if the commit fails the
// attempt has failed. Commit and Rollback of the transaction itself return an error;
// a handler that ends it otherwise, with SQL or on its connection, fails for good. Savepoints, as tx.Begin makes them,
// and SET TRANSACTION are its own matter.
//
// The transaction holds a connection of the pool and, as any, row locks and a
// snapshot until the handler returns: do the slow work before it, and let
// [KindOpts.MaxParallel] keep fewer of them open than the pool has connections. A process that freezes keeps it open as
// well, and the node, run again elsewhere, may wait for its locks: the server ends it if the pool's connections have
// idle_in_transaction_session_timeout set, to more than a handler takes between two statements. Once the node's record is
// written the server ends it in any case.
func (n *Node) Tx(ctx context.Context) (pgx.Tx, error) { return n.call.TxFunc(ctx, nil) }

// TxThen is [Node.Tx] for statements that may leave something on their session,
// such as a setting or an advisory lock: when the transaction has ended, after
// gets the connection before the pool does, to tidy or to close it. It is closed after that if the pool has an AfterConnect:
// what that has set may be tidied away as well.
func (n *Node) TxThen(ctx context.Context, after func(ctx context.Context, conn *pgx.Conn)) (pgx.Tx, error) {
	return n.call.TxFunc(ctx, after)
}

// Usage is what a node, a failed attempt or a run has spent.
type Usage struct {
	InputTokens, OutputTokens int64
	// CostNanoUSD is in billionths of a US dollar.
	CostNanoUSD int64
	// Unpriced counts what was spent at a price that is not known, so that the cost says less than was spent.
	Unpriced int64
	// CachedTokens are those of the input that were read from the provider's cache, ReasoningTokens those of the output
	// that were reasoning. They are in the node's record, for people to see; no sum over nodes has them.
	CachedTokens, ReasoningTokens int64
}

// AddUsage adds to what the record of this attempt says was spent, also if the attempt fails.
func (n *Node) AddUsage(u Usage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.usage == nil {
		n.usage = &pb.Usage{}
	}
	n.usage.InputTokens += u.InputTokens
	n.usage.OutputTokens += u.OutputTokens
	n.usage.CostNanoUsd += u.CostNanoUSD
	n.usage.Unpriced += u.Unpriced
	n.usage.CachedTokens += u.CachedTokens
	n.usage.ReasoningTokens += u.ReasoningTokens
}

// Budget is what a run has spent and may still spend. A limit of 0 is no limit.
type Budget struct {
	// Spent is the sum over the nodes recorded so far, child runs included.
	Spent Usage
	Nodes int64
	// Active is for how long the run has been owned by a replica.
	Active time.Duration

	MaxTokens, MaxCostNanoUSD, MaxNodes int64
	MaxActive                           time.Duration
	// UntilDeadline is the time left, at the start of the attempt; 0 without a deadline.
	UntilDeadline time.Duration
	// NearLimit reports that some limit is used up to the run's soft limit, 80 %
	// unless the run says otherwise: time to wrap up.
	NearLimit bool
	// LimitReached names the limit that is reached, for people; empty if none is.
	// Only a node with [SpawnOpts.OwnLimits] sees one.
	LimitReached string
}

// Budget returns the run's budget as of the start of this attempt.
func (n *Node) Budget() Budget {
	in := n.call.Budget
	b := Budget{
		Spent:          Usage{InputTokens: in.Spent.InputTokens, OutputTokens: in.Spent.OutputTokens, CostNanoUSD: in.Spent.CostNanoUSD, Unpriced: in.Spent.Unpriced},
		Nodes:          in.Spent.Nodes,
		Active:         in.Active,
		MaxTokens:      in.Limits.MaxTokens,
		MaxCostNanoUSD: in.Limits.MaxCostNanoUSD,
		MaxNodes:       in.Limits.MaxNodes,
		MaxActive:      time.Duration(in.Limits.MaxWallMs) * time.Millisecond,
		NearLimit:      in.NearLimit(),
		LimitReached:   in.Reached,
	}
	if in.Limits.DeadlineUs != 0 {
		b.UntilDeadline = time.UnixMicro(in.Limits.DeadlineUs).Sub(in.Now)
	}
	return b
}

// Join says what a node needs of its parents.
type Join int

const (
	// AllSucceeded: every parent must succeed. If one fails the node is skipped,
	// and so are those that need it.
	AllSucceeded Join = iota
	// AllDone: every parent must be done, whether it succeeded, failed or was
	// skipped. The node sees each one's status and error; a failure that such a
	// node sees does not fail the run.
	AllDone
)

// SpawnOpts are the optional parts of a successor.
type SpawnOpts struct {
	// ID defaults to the kind with a number, as in "tool-7". At most 256 bytes, unique in the run.
	ID NodeID
	// After names the parents: nodes spawned by the same call of the handler,
	// or any others of the run, pending or done. Defaults to the spawning node.
	After []NodeRef
	// Join defaults to AllSucceeded.
	Join Join
	// InputRefs makes the input a template: each object {"$ref": "id#/pointer"}
	// in it is replaced by that value from the output of the ancestor id when
	// the node starts. The pointer is a JSON pointer (RFC 6901). A reference has at most 1,024 bytes, and the input with
	// all of them replaced at most 16 MiB, else the node fails for good, as it does where there is no such value (code
	// bad_ref).
	InputRefs bool
	// Retry overrides the kind's policy for this node, field by field; zero fields leave it to the kind.
	Retry RetryPolicy
	// AtMostOnce overrides the kind's; its zero leaves it to the kind.
	AtMostOnce UnknownOutcome
	// Timeout overrides the kind's bound of one attempt; 0 leaves it to the kind.
	Timeout time.Duration
	// OwnLimits has the node start although a limit of the run is reached: its
	// handler looks at [Node.Budget] and winds down, say with a last answer and [Node.Pause].
	// With Join AllDone the limit holds none of its parents either: one that has not
	// started ends with an error of code "limit_reached" that names the limit.
	OwnLimits bool
}

// NodeRef names a node as a parent.
type NodeRef struct {
	id    NodeID
	index int // 1-based position among the spawns of one handler call, when id is empty
}

// Ref names the node with that id as a parent.
func Ref(id NodeID) NodeRef { return NodeRef{id: id} }

// Spawn adds a successor to what this node's record will say. It starts after
// the record committed (G5) and its parents are done. A spawn that makes no
// sense (a taken id, an unknown parent, a cycle, an input that is not JSON)
// fails the node for good with an error that names it.
func (n *Node) Spawn(kind string, input any, opts *SpawnOpts) NodeRef {
	if opts == nil {
		opts = &SpawnOpts{}
	}
	raw, err := encodeJSON(input)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.spawnErr == nil {
		n.spawnErr = fmt.Errorf("input of spawned %s %q: %w", kind, opts.ID, err)
	}
	s := executor.Spawn{
		ID: opts.ID, Kind: kind, Input: jsonPayload(raw), InputRefs: opts.InputRefs, AtMostOnce: pb.UnknownOutcome(opts.AtMostOnce),
		Timeout: max(opts.Timeout, 0), OwnLimits: opts.OwnLimits,
	}
	if opts.Join == AllDone {
		s.Join = pb.Join_JOIN_ALL_DONE
	}
	if opts.Retry != (RetryPolicy{}) {
		s.Retry = &pb.RetryPolicy{
			MaxAttempts:  uint32(max(opts.Retry.MaxAttempts, 0)),
			MinBackoffUs: opts.Retry.MinBackoff.Microseconds(),
			MaxBackoffUs: opts.Retry.MaxBackoff.Microseconds(),
		}
	}
	for _, ref := range opts.After {
		if ref.id == "" && (ref.index < 1 || ref.index > len(n.spawns)) {
			n.spawnErr = fmt.Errorf("spawned %s %q: After holds a NodeRef that is not of this call of the handler", kind, opts.ID)
			continue
		}
		s.Parents = append(s.Parents, executor.Parent{ID: ref.id, Index: ref.index - 1})
	}
	n.spawns = append(n.spawns, s)
	return NodeRef{id: opts.ID, index: len(n.spawns)}
}

// Ref names this node as a parent.
func (n *Node) Ref() NodeRef { return Ref(n.ID()) }

func (n *Node) result(output []byte) (*executor.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spawnErr != nil {
		return &executor.Result{Usage: n.usage}, Permanent(WithCode(n.spawnErr, "bad_successor"))
	}
	return &executor.Result{Output: jsonPayload(output), Spawns: n.spawns, Final: n.final, Usage: n.usage, PauseReason: n.pause}, nil
}

// spent is what counts of an attempt that failed.
func (n *Node) spent() *executor.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &executor.Result{Usage: n.usage}
}

// Status is how a node ended.
type Status string

// A node that is done has one of these.
const (
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	// StatusSkipped: a parent it needed did not succeed, so it never ran.
	StatusSkipped Status = "skipped"
)

// Ancestor is a node that was done before this one started.
type Ancestor struct {
	node *graph.Node
	call *executor.Call
}

func ancestors(call *executor.Call, nodes []*graph.Node) []*Ancestor {
	out := make([]*Ancestor, 0, len(nodes))
	for _, p := range nodes {
		if p.Status().Done() { // a skipped node may have parents that still run
			out = append(out, &Ancestor{node: p, call: call})
		}
	}
	return out
}

// ID returns the ancestor's id.
func (a *Ancestor) ID() NodeID { return a.node.ID }

// Kind returns the ancestor's kind.
func (a *Ancestor) Kind() string { return a.node.Kind }

// Parents returns the ancestor's own parents.
func (a *Ancestor) Parents() []*Ancestor { return ancestors(a.call, a.node.Parents) }

// Status returns how the ancestor ended.
func (a *Ancestor) Status() Status {
	switch a.node.Status() {
	case graph.StatusSucceeded:
		return StatusSucceeded
	case graph.StatusSkipped:
		return StatusSkipped
	default:
		return StatusFailed
	}
}

// Err returns the error of an ancestor that failed or was skipped, else nil.
func (a *Ancestor) Err() error {
	switch a.Status() {
	case StatusSucceeded:
		return nil
	case StatusSkipped:
		return fmt.Errorf("node %s was skipped: a parent did not succeed", a.ID())
	default:
		return errors.New(a.node.Err.GetMessage())
	}
}

// RawInput returns the ancestor's input as JSON. The bytes must not be changed.
func (a *Ancestor) RawInput() (json.RawMessage, error) { return a.call.BytesFunc(a.node.Input) }

// RawOutput returns the ancestor's output as JSON, byte for byte as its handler
// gave it; nil if it did not succeed. The bytes must not be changed. An output
// that was too large for the log is read from where it is: return the error as
// it is, and the attempt ends as such a failure has to.
func (a *Ancestor) RawOutput() (json.RawMessage, error) { return a.call.BytesFunc(a.node.Output) }

// Output decodes the ancestor's output into dst; its error if it did not succeed.
func (a *Ancestor) Output(dst any) error {
	if err := a.Err(); err != nil {
		return err
	}
	raw, err := a.RawOutput()
	if err != nil {
		return fmt.Errorf("output of node %s: %w", a.ID(), err)
	}
	if err := decodeJSON(raw, dst); err != nil {
		return fmt.Errorf("output of node %s: %w", a.ID(), err)
	}
	return nil
}
