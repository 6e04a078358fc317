package graph

import (
	"slices"
	"sync/atomic"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// NodeID names a node within its run.
type NodeID string

// RootID is the node every run begins with.
const RootID NodeID = "root"

// Node is one step of a run. What it consists of differs in who may read it when.
type Node struct {
	Spec
	Outcome
	Progress
	edges
	// status is written last by the record that ends the node: what is final says that the rest is there.
	status atomic.Uint32
	// prev and next are the links of the frontier.
	prev, next *Node
	// checked holds the specs whose ids Check reserved for this node.
	checked []*pb.NodeSpec
}

// Status returns how far the node has come. Safe for concurrent use.
func (n *Node) Status() Status { return Status(n.status.Load()) }

func (n *Node) setStatus(s Status) { n.status.Store(uint32(s)) }

// HoldsUpOwnLimits reports that a node waits for this one, however it ends, that is to start although a
// limit is reached. It is only for the goroutine that owns the graph.
func (n *Node) HoldsUpOwnLimits() bool {
	return slices.ContainsFunc(n.children, func(c *Node) bool { return c.OwnLimits && c.Join == pb.Join_JOIN_ALL_DONE })
}

// Spec is what a node is to do, and after which others. It is fixed since the node
// is known: any goroutine may read it.
type Spec struct {
	ID    NodeID
	Kind  string
	Input *pb.Payload
	// Parents is empty only for the root. A skipped node may have parents that are not done.
	Parents []*Node
	// Retry overrides the kind's policy; nil leaves all to the kind.
	Retry *pb.RetryPolicy
	// TimeoutUs bounds each attempt; 0 leaves it to the kind.
	TimeoutUs int64
	Join      pb.Join
	// AtMostOnce, if specified, has the node run at most once.
	AtMostOnce pb.UnknownOutcome
	// InputRefs says that Input is a template, see Refs.
	InputRefs bool
	// OwnLimits has the node start although a limit of the run is reached.
	OwnLimits bool
}

// read takes in all but the parents, which may not be known yet.
func (s *Spec) read(spec *pb.NodeSpec) {
	s.ID, s.Kind, s.Join = NodeID(spec.GetId()), spec.GetKind(), spec.GetJoin()
	s.Input, s.InputRefs = spec.GetInput(), spec.GetInputRefs()
	s.Retry, s.AtMostOnce = spec.GetRetry(), spec.GetAtMostOnce()
	s.TimeoutUs, s.OwnLimits = spec.GetTimeoutUs(), spec.GetOwnLimits()
}

// Outcome is how a node ended. The record that ends the node writes it: any
// goroutine may read it after Status reported a final status, and never before.
type Outcome struct {
	Output *pb.Payload
	Err    *pb.Error
	// Seq is the position of that record; 0 for a skipped node.
	Seq int64
	// Final marks Output as the result of the run.
	Final bool
}

func (o *Outcome) read(seq int64, rec *pb.Node) {
	o.Output, o.Err, o.Seq, o.Final = rec.GetOutput(), rec.GetError(), seq, rec.GetFinal()
}

// Progress is how far the attempts of a node have come. It is only for the
// goroutine that owns the graph.
type Progress struct {
	// Attempts is the highest attempt known to have failed, or the one that ended the node.
	Attempts uint32
	// Lost counts those of them of which only their replica's death is known, or a worker's: no failures (C17).
	Lost uint32
	// StartedAttempt is the attempt of the last started record; 0 without one.
	StartedAttempt uint32
	// StartedUs is when that record was made, in microseconds since the Unix epoch.
	StartedUs int64
	// NotBefore is the earliest time of the next attempt, in microseconds since the Unix epoch.
	NotBefore int64
	// Failure is the error of the attempt that failed last.
	Failure *pb.Error
	// ReadyUs is when the record was made that made the node ready: what a wait's length counts from.
	ReadyUs int64
}

func (p *Progress) attemptFailed(rec *pb.AttemptFailed) {
	p.Attempts, p.NotBefore, p.Failure = rec.GetAttempt(), rec.GetNotBeforeUs(), rec.GetError()
	if lost(rec) {
		p.Lost++
	}
}

// lost: the record says of an attempt that what came of it is not known. A handler may give its error the same code; then
// it is known when it began.
func lost(rec *pb.AttemptFailed) bool {
	return rec.GetError().GetCode() == CodeOutcomeUnknown && rec.GetStartedUs() == 0
}

func (p *Progress) attemptStarted(rec *pb.Started) {
	p.StartedAttempt, p.StartedUs = rec.GetAttempt(), rec.GetAtUs()
}

func (p *Progress) ended(rec *pb.Node) {
	p.Attempts, p.Failure = max(p.Attempts, rec.GetAttempt()), nil
}

// startOver has attempts counted anew, from the moment the node is ready again.
func (p *Progress) startOver() { *p = Progress{} }
