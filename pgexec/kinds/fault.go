package kinds

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgexec/runtime/pgexec"
)

// Codes of the errors of stock kinds, beside the SQLSTATEs that nodes of kind
// sql fail with.
const (
	codeBadInput   = "bad_input"
	codeTimeout    = "timeout"
	codeConnection = "connection"
	codeTooLarge   = "too_large"
	codeNoSQL      = "no_sql"
)

// inputPath names the input as a whole in an error.
const inputPath = "input"

// maxOutput bounds the output of a sql node as JSON: more rows are for the
// statement to narrow, not for a run to carry.
const maxOutput = 960 << 10

// fault is an error about which it is decided whether another attempt is worth making.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }

func (f *fault) Unwrap() error { return f.err }

// permanent makes an error that no further attempt can mend.
func permanent(code, format string, args ...any) error {
	return &fault{pgexec.Permanent(pgexec.WithCode(fmt.Errorf(format, args...), code))}
}

// retryable makes an error that the kind's policy decides about.
func retryable(code, format string, args ...any) error {
	return &fault{pgexec.WithCode(fmt.Errorf(format, args...), code)}
}

// isFault reports whether err needs no further classification.
func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// badInput makes the error of an input that cannot be right on any attempt.
func badInput(format string, args ...any) error {
	return permanent(codeBadInput, format, args...)
}

// cutOff returns the cause with which the handler's own context ended, nil while
// it has not: what cuts a node off from outside is not the node's failure.
func cutOff(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
