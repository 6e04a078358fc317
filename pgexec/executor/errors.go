package executor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pgexec/runtime/pgexec/blob"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Causes of a handler's cancelled context, read with [context.Cause].
var (
	// ErrDraining: the replica shuts down and its grace time is over. The node
	// will run again elsewhere; this is no failed attempt.
	ErrDraining = errors.New("replica is draining: the node will run again on another replica")
	// ErrOwnershipLost: this replica no longer owns the run, so nothing the handler returns can be recorded.
	ErrOwnershipLost = errors.New("ownership lost: the run belongs to another replica now")
	// ErrCancelled: somebody cancelled the run.
	ErrCancelled = errors.New("run cancelled")
	// ErrRunEnded: the run ended while the node was in flight.
	ErrRunEnded = errors.New("run ended")
)

// Failure is a handler's error with what the retry decision needs.
type Failure struct {
	Err error
	// Code is a short stable word for programs.
	Code string
	// Permanent means that no further attempt is made.
	Permanent bool
	// RetryAfter, when positive, replaces the policy's backoff.
	RetryAfter time.Duration
	// Stack is the goroutine's stack, for a panic.
	Stack string
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error the handler gave.
func (f *Failure) Unwrap() error { return f.Err }

// asFailure gathers what the wrapped errors of a handler say about it. It calls
// their methods, which may panic, and keeps of them only what they say.
func asFailure(ctx context.Context, err error) *Failure {
	out := &Failure{Err: errors.New(err.Error())}
	for e := err; e != nil; {
		var f *Failure
		if !errors.As(e, &f) {
			break
		}
		out.Permanent = out.Permanent || f.Permanent
		out.RetryAfter = max(out.RetryAfter, f.RetryAfter)
		if out.Code == "" {
			out.Code = f.Code
		}
		if out.Stack == "" {
			out.Stack = f.Stack
		}
		e = f.Err
	}
	var fault *blob.Fault
	if errors.As(err, &fault) {
		out.Permanent = true
		if out.Code == "" {
			out.Code = fault.Code
		}
	}
	if out.Code == "" {
		out.Code = "error"
		if errors.Is(context.Cause(ctx), errTimeout) {
			out.Code = "timeout"
		}
	}
	return out
}

const (
	maxErrorMessage = 16 << 10
	maxStack        = 8 << 10
	maxErrorCode    = 128
	// maxRetryAfter caps what a handler may ask for, so that a broken server cannot park a node for ever.
	maxRetryAfter = 24 * time.Hour
)

func (f *Failure) proto(permanent bool) *pb.Error {
	return &pb.Error{
		Message:   truncate(f.Err.Error(), maxErrorMessage),
		Code:      truncate(f.Code, maxErrorCode),
		Stack:     truncate(f.Stack, maxStack),
		Permanent: permanent,
	}
}

// truncate makes s valid UTF-8, as protobuf strings must be, of at most n bytes.
func truncate(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "… (cut)"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
