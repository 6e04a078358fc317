package executor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// C27: what the database refuses is tried again after longer and longer times. What passes is not, after many claims that were of
// something else: a run to be cancelled whose row an application has locked for a while ends soon after.
func TestRest_GrowsOnlyWithWhatIsRefusedForGood_C27(t *testing.T) {
	const many = 50
	for name, err := range map[string]error{
		"locked":             &pgconn.PgError{Code: "55P03"},
		"time is over":       fmt.Errorf("append record: %w", context.DeadlineExceeded),
		"connection is gone": fmt.Errorf("cancel child run: %w", syscall.EPIPE),
		"server stops":       fmt.Errorf("cancel child run: %w", &pgconn.PgError{Code: "57P01"}),
	} {
		if d := rest(err, many); d > conclusionRetry.MinBackoff {
			t.Errorf("%s: the run rests for %v", name, d)
		}
	}
	for name, err := range map[string]error{
		"constraint": fmt.Errorf("append record: %w", &pgconn.PgError{Code: "23514"}),
		"no rights":  &pgconn.PgError{Code: "42501"},
		"not in SQL": errors.New("the record is not the next one"),
	} {
		if d := rest(err, many); d < conclusionRetry.MaxBackoff/2 {
			t.Errorf("%s: the run rests for only %v", name, d)
		}
	}
}
