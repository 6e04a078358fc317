package pgexec

import (
	"errors"
	"time"

	"github.com/pgexec/runtime/pgexec/executor"
)

// Causes of a handler's ended context, read with [context.Cause].
var (
	// ErrDraining: the replica shuts down and its grace time is over. The node
	// runs again on another replica; this is no failed attempt.
	ErrDraining = executor.ErrDraining
	// ErrOwnershipLost: the run belongs to another replica now; nothing this
	// handler returns can be recorded (G3).
	ErrOwnershipLost = executor.ErrOwnershipLost
	// ErrCancelled: somebody cancelled the run, or one above it.
	ErrCancelled = executor.ErrCancelled
)

// Errors of the client.
var (
	// ErrRunNotFound: no run has that id.
	ErrRunNotFound = errors.New("run not found")
	// ErrIdempotencyMismatch: the idempotency key belongs to a run of another kind or input.
	ErrIdempotencyMismatch = errors.New("idempotency key belongs to a run of another kind or input")
)

// Permanent marks a handler's error as one that no retry can mend; nil stays nil.
func Permanent(err error) error { return mark(err, executor.Failure{Permanent: true}) }

// RetryAfter marks a handler's error as one to be retried no earlier than d
// from now, in place of the kind's backoff; d is capped at 24 hours. The kind's
// limit of attempts still holds. Nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	return mark(err, executor.Failure{RetryAfter: d})
}

// WithCode gives a handler's error a short stable word for programs, shown in
// the log beside the message; nil stays nil.
func WithCode(err error, code string) error { return mark(err, executor.Failure{Code: code}) }

// mark says more of an error, and nothing of none: a handler may mark whatever it has got.
func mark(err error, f executor.Failure) error {
	if err == nil {
		return nil
	}
	f.Err = err
	return &f
}

// RunError is the error of a run that did not succeed.
type RunError struct {
	RunID RunID
	// Status is "failed" or "cancelled".
	Status RunStatus
	// Message names the node whose failure ended the run, and its error.
	Message string
}

func (e *RunError) Error() string {
	return "run " + e.RunID.String() + " " + string(e.Status) + ": " + e.Message
}
