package graph

import (
	"sync/atomic"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// NodeID names a node within its run.
type NodeID string

// RootID is the node every run begins with.
const RootID NodeID = "root"

// Status says how far a node has come.
type Status uint8

const (
	// StatusWaiting means that some parent is not done.
	StatusWaiting Status = iota
	// StatusReady means that the node may run, or is running.
	StatusReady
	// StatusSucceeded means that the handler returned. It is final, as are all that follow.
	StatusSucceeded
	// StatusFailed means that the handler failed for good.
	StatusFailed
	// StatusOutcomeUnknown is an at-most-once node that was in flight at a crash.
	StatusOutcomeUnknown
	// StatusCancelled means that the node was stopped.
	StatusCancelled
	// StatusSkipped follows from a parent that did not succeed; it has no record.
	StatusSkipped
)

// CodeOutcomeUnknown is the code of the error of an at-most-once node that was in
// flight at a crash.
const CodeOutcomeUnknown = "outcome_unknown"

var statusNames = [...]string{
	StatusWaiting:        "waiting",
	StatusReady:          "ready",
	StatusSucceeded:      "succeeded",
	StatusFailed:         "failed",
	StatusOutcomeUnknown: "outcome unknown",
	StatusCancelled:      "cancelled",
	StatusSkipped:        "skipped",
}

// String returns the status in words.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// Done reports whether the status is final.
func (s Status) Done() bool { return s >= StatusSucceeded }

// Failed reports whether a record ended the node without success. A skipped
// node did not fail: its parent did.
func (s Status) Failed() bool {
	return s == StatusFailed || s == StatusOutcomeUnknown || s == StatusCancelled
}

func statusOf(s pb.NodeStatus) (Status, bool) {
	switch s {
	case pb.NodeStatus_NODE_STATUS_SUCCEEDED:
		return StatusSucceeded, true
	case pb.NodeStatus_NODE_STATUS_FAILED:
		return StatusFailed, true
	case pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN:
		return StatusOutcomeUnknown, true
	case pb.NodeStatus_NODE_STATUS_CANCELLED:
		return StatusCancelled, true
	default:
		return 0, false
	}
}

// Node is one step of a run. Its fields come in three groups, by who may read
// them when.
type Node struct {
	// Fixed since the node is known: any goroutine may read them.

	ID    NodeID
	Kind  string
	Join  pb.Join
	Input *pb.Payload
	// InputRefs says that Input is a template, see Refs.
	InputRefs bool
	// Retry overrides the kind's policy; nil leaves all to the kind.
	Retry *pb.RetryPolicy
	// AtMostOnce, if specified, has the node run at most once.
	AtMostOnce pb.UnknownOutcome
	// TimeoutUs bounds each attempt; 0 leaves it to the kind.
	TimeoutUs int64
	// OwnLimits has the node start although a limit of the run is reached.
	OwnLimits bool
	// Parents is empty only for the root. A skipped node may have parents that are not done.
	Parents []*Node

	// Written once by the record that ends the node: any goroutine may read them
	// after Status reported a final status, and never before.

	Output *pb.Payload
	Err    *pb.Error
	// Seq is the position of that record; 0 for a skipped node.
	Seq int64
	// Final marks Output as the result of the run.
	Final bool

	// Only for the goroutine that owns the graph.

	// Attempts is the highest attempt known to have failed, or the one that ended the node.
	Attempts uint32
	// StartedAttempt is the attempt of the last started record; 0 without one.
	StartedAttempt uint32
	// NotBefore is the earliest time of the next attempt, in microseconds since the Unix epoch.
	NotBefore int64
	// Failure is the error of the attempt that failed last.
	Failure *pb.Error
	// ReadyUs is when the record was made that made the node ready: what a wait's length counts from.
	ReadyUs int64

	status atomic.Uint32
	// unsettled counts the parents that are not done.
	unsettled int32
	// troubled: some parent is done and did not succeed.
	troubled bool
	// handled: an all-done node sees this failure, directly or through skipped nodes.
	handled bool
	parent  bool // some node has this one as a parent
	// children lists the nodes to tell when this one is done; released then.
	children   []*Node
	firstChild [1]*Node // backs children while there is one
	// Links of the frontier.
	prev, next *Node
	// checked holds the specs whose ids Check reserved for this node.
	checked []*pb.NodeSpec
}

// Status returns how far the node has come. Safe for concurrent use.
func (n *Node) Status() Status { return Status(n.status.Load()) }

func (n *Node) setStatus(s Status) { n.status.Store(uint32(s)) }

// addChild registers c to be told when n is done.
func (n *Node) addChild(c *Node) {
	if n.children == nil {
		n.children = n.firstChild[:0]
	}
	n.children = append(n.children, c)
}

// frontier is the list of ready nodes in the order they became ready.
type frontier struct {
	first, last *Node
	len         int
}

func (f *frontier) push(n *Node) {
	n.prev = f.last
	if f.last == nil {
		f.first = n
	} else {
		f.last.next = n
	}
	f.last = n
	f.len++
}

func (f *frontier) remove(n *Node) {
	if n.prev == nil {
		f.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		f.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
	f.len--
}
