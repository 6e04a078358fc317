package ownership

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSessionLost says that the replica's session is gone, or must be taken for
// gone. Nothing in memory may be trusted: other replicas own the runs, or will soon.
var ErrSessionLost = errors.New("replica session is lost")

// PoolerError says that the session connection does not keep one backend for
// itself, so that its advisory lock would belong to somebody else (C05).
type PoolerError struct {
	// Address is where the connection goes.
	Address string
	// Found is what gave the pooler away.
	Found string
}

func (e *PoolerError) Error() string {
	return fmt.Sprintf("%s is a pooler in transaction mode (%s), and a replica's session needs a connection of its own: "+
		"give the server's direct address with --session-database-url or PGEXEC_SESSION_DATABASE_URL", e.Address, e.Found)
}

// SQLSTATE classes and codes that decide what to do next.
const (
	uniqueViolation       = "23505"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	insufficientPrivilege = "42501"
)

// lostRace reports whether a statement was rolled back whole because another
// one came first; the same statement may succeed now.
func lostRace(err error) bool {
	switch sqlState(err) {
	case uniqueViolation, serializationFailure, deadlockDetected:
		return true
	}
	return false
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}
