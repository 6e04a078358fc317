package graph

import pb "github.com/pgexec/runtime/proto/pgexec/v1"

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
