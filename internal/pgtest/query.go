package pgtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Exec runs one statement; an error ends the test.
func Exec(t testing.TB, pool *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Value returns the one value that a statement answers.
func Value[T any](t testing.TB, pool *pgxpool.Pool, statement string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), statement, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// Pause waits between two looks at something, until the test ends at most.
func Pause(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
