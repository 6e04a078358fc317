package executor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/throttle"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Kind is what a node of that name does, its types erased.
type Kind struct {
	Name string
	// HandlerFunc makes one attempt of one node. It may panic; it should
	// return soon after ctx is done, whose cause says why.
	HandlerFunc func(ctx context.Context, call *Call) (*Result, error)
	Retry       RetryPolicy
	// Timeout bounds one attempt; 0 means no bound.
	Timeout time.Duration
	// AtMostOnce, if specified, has nodes of this kind run at most once.
	AtMostOnce pb.UnknownOutcome
	// MaxParallel bounds the attempts of this kind that run at once on one
	// replica; 0 means no bound of its own.
	MaxParallel int
	// external: programs outside do it, and there is no handler.
	external bool
	// Limit is what this program declares for the whole fleet; nil for nothing.
	Limit *throttle.Limit
}

// RetryPolicy says how often and when a failed attempt is made again.
type RetryPolicy struct {
	// MaxAttempts counts the first attempt too; 1 means no retry.
	MaxAttempts int
	// The nth retry waits MinBackoff · 2ⁿ⁻¹, at most MaxBackoff, of which a random half is jitter.
	MinBackoff, MaxBackoff time.Duration
}

// override replaces the fields that a node's own policy sets.
func (p RetryPolicy) override(own *pb.RetryPolicy) RetryPolicy {
	if n := own.GetMaxAttempts(); n > 0 {
		p.MaxAttempts = int(n)
	}
	if us := own.GetMinBackoffUs(); us > 0 {
		p.MinBackoff = time.Duration(us) * time.Microsecond
		p.MaxBackoff = max(p.MaxBackoff, p.MinBackoff)
	}
	if us := own.GetMaxBackoffUs(); us > 0 {
		p.MaxBackoff = time.Duration(us) * time.Microsecond
	}
	return p
}

// Backoff returns the wait after the given failed attempt (from 1).
func (p RetryPolicy) Backoff(attempt uint32) time.Duration {
	d := p.MinBackoff
	for i := uint32(1); i < attempt && d < p.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, p.MaxBackoff)
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d/2+1)
}

// Call is one attempt of one node.
type Call struct {
	RunID runlog.RunID
	// Node's exported fields and those of its ancestors may be read, not changed.
	Node *graph.Node
	// Input is the node's input with every reference resolved.
	Input   *pb.Payload
	Attempt uint32
	Budget  Budget
	// HasKindFunc reports whether nodes of that kind can be done: here, by programs outside, or as a wait; true where
	// the database could not be asked.
	HasKindFunc func(name string) bool
	// BytesFunc returns the JSON of an input or output of the run, nil of none.
	BytesFunc func(*pb.Payload) ([]byte, error)
	// Blobs has files of the application's own.
	Blobs *blob.Store
	// TxFunc begins the transaction that commits with the node's record, or returns the one begun before.
	// When it has ended, after (unless nil) gets its connection.
	TxFunc func(ctx context.Context, after AfterFunc) (pgx.Tx, error)
}

// Result is what a handler returns; beside an error only Usage counts.
type Result struct {
	Output *pb.Payload
	Spawns []Spawn
	// Final marks Output as the run's result.
	Final bool
	Usage *pb.Usage
	// PauseReason, unless empty, has the run pause after this node.
	PauseReason string
}

// Spawn describes a successor. An empty ID gets one of the form kind-n.
type Spawn struct {
	ID        graph.NodeID
	Kind      string
	Parents   []Parent
	Join      pb.Join
	Input     *pb.Payload
	InputRefs bool
	// Retry overrides the kind's policy; nil leaves all to the kind.
	Retry *pb.RetryPolicy
	// AtMostOnce overrides the kind's; unspecified leaves it to the kind.
	AtMostOnce pb.UnknownOutcome
	// Timeout overrides the kind's; 0 leaves it to the kind.
	Timeout time.Duration
	// OwnLimits has the node start although a limit of the run is reached.
	OwnLimits bool
}

// Parent names a parent: another successor of the same result by its position
// there, or any node by its id.
type Parent struct {
	ID graph.NodeID
	// Index is the position in Result.Spawns, from 0; read when ID is empty.
	Index int
}
