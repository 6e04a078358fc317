package executor

import (
	"context"
	"time"
)

// cancelGrace is how long handlers may take to return after they were
// cancelled, before the run is let go without them.
const cancelGrace = time.Second

// contexts are those of a run's handlers. What is cancelled stays cancelled.
type contexts struct {
	// ctx is the parent of all handlers' contexts.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// giveUp fires when cancelled handlers have had their time to return.
	giveUp <-chan time.Time
}

func newContexts(workCtx context.Context) contexts {
	var c contexts
	c.ctx, c.cancel = context.WithCancelCause(workCtx)
	return c
}

// cancelHandlers has all handlers return, and gives them a moment to do so.
func (c *contexts) cancelHandlers(cause error) {
	c.cancel(cause)
	c.giveUp = time.After(cancelGrace)
}

// end cancels what the run has left.
func (c *contexts) end() {
	c.cancel(ErrRunEnded)
}
