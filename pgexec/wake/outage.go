package wake

import (
	"context"
	"log/slog"
	"time"
)

// outage logs the first failure of a row of failures, and its end.
type outage struct {
	logger *slog.Logger
	task   string
	since  time.Time
}

func (o *outage) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		o.logger.Warn("cannot "+o.task+", trying on", "error", err)
	case err == nil && !o.since.IsZero():
		o.logger.Info("can "+o.task+" again", "after", time.Since(o.since))
		o.since = time.Time{}
	}
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
