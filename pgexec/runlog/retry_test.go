package runlog

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// C27: only what may succeed is sent again.
func TestRetry_OnlyWhatMaySucceed_C27(t *testing.T) {
	t.Parallel()
	code := func(c string) error { return &pgconn.PgError{Code: c} }
	for _, c := range []string{
		"40001", "40P01", "57P01", "57P02", "57P03", "08000", "08006", "53300", "53100", "55P03", "57014", "25006",
	} {
		if !mayRetry(code(c)) {
			t.Errorf("%s is not sent again", c)
		}
	}
	for _, c := range []string{"23505", "23514", "23502", "42501", "42P01", "42883", "22P02", "22021", "54000", "XX000", "0A000", "28P01", ""} {
		if mayRetry(code(c)) {
			t.Errorf("%q is sent again", c)
		}
	}
	for err, want := range map[error]bool{
		&lostConnError{io.ErrUnexpectedEOF}:         true,
		&lostConnError{code("XX000")}:               true,
		&connectError{errors.New("refused")}:        true,
		&connectError{context.DeadlineExceeded}:     true,
		&connectError{code("53300")}:                true,
		&connectError{code("28P01")}:                false,
		errors.New("failed to encode args[0]: bad"): false,
	} {
		if mayRetry(err) != want {
			t.Errorf("%v: sent again is %v, want %v", err, !want, want)
		}
	}
}

// C27: the waits grow from 10 ms to 1 s, each with jitter of a half, and end with the context.
func TestRetry_WaitsGrowAndAreBounded_C27(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pace := flushBackoff()
		step := 10 * time.Millisecond
		for range 20 {
			start := time.Now()
			if !pace.wait(t.Context()) {
				t.Fatal("the wait was cut short")
			}
			if got := time.Since(start); got < step/2 || got > step {
				t.Errorf("waited %v, want between %v and %v", got, step/2, step)
			}
			step = min(2*step, time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if pace.wait(ctx) || time.Since(start) > 10*time.Millisecond {
			t.Errorf("waited %v although the context ended", time.Since(start))
		}
	})
}
