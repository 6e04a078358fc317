package runlog

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// lostConnError says that the connection did not survive: what became of the statement is not known.
type lostConnError struct{ err error }

func (e *lostConnError) Error() string { return "connection lost: " + e.err.Error() }
func (e *lostConnError) Unwrap() error { return e.err }

// connectError says that there was no connection to send the statement on.
type connectError struct{ err error }

func (e *connectError) Error() string { return "connect: " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// Passing tells whether what failed with err may well succeed in a moment: somebody holds a lock, the database does not answer, or a
// connection is gone. What it refuses for other reasons it may refuse for long.
func Passing(err error) bool {
	var network net.Error // that of a time limit included
	return mayRetry(err) || errors.Is(err, errBusy) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// mayRetry tells whether the same statement may succeed later (C27).
func mayRetry(err error) bool {
	var lost *lostConnError
	if errors.As(err, &lost) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return mayRetryCode(pgErr.Code)
	}
	var connect *connectError
	return errors.As(err, &connect)
}

func mayRetryCode(code string) bool {
	switch code {
	case "40001", "40P01", // serialization failure, deadlock
		"55P03", "57014", // lock or statement timeout of the role
		"57P01", "57P02", "57P03", // the server stops or starts
		"25006": // a former primary, until connections reach the new one
		return true
	}
	// Connection exceptions; insufficient resources: connections, disk, memory.
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53")
}

// backoff paces attempts.
type backoff struct{ least, most, step time.Duration }

// flushBackoff paces the attempts at one flush.
func flushBackoff() backoff { return backoff{least: 10 * time.Millisecond, most: time.Second} }

// wait returns false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.step = min(max(2*b.step, b.least), b.most)
	timer := time.NewTimer(b.step/2 + rand.N(b.step/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
