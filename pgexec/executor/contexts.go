package executor

import (
	"context"
	"time"
)

// cancelGrace is how long handlers may take to return after they were
// cancelled, before the run is let go without them.
const cancelGrace = time.Second

// contexts are those of a run's handlers. What is cancelled stays cancelled;
// what may not start for now may be let start again.
type contexts struct {
	// ctx is the parent of all handlers' contexts. launchCtx is that of the waits
	// before they start; it ends when nothing more may start.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	launchCtx  context.Context
	stopLaunch context.CancelFunc
	// giveUp fires when cancelled handlers have had their time to return.
	giveUp <-chan time.Time
}

func newContexts(workCtx context.Context) contexts {
	var c contexts
	c.ctx, c.cancel = context.WithCancelCause(workCtx)
	c.letStart()
	return c
}

// letStart has nodes start that are launched from now on.
func (c *contexts) letStart() { c.launchCtx, c.stopLaunch = context.WithCancel(c.ctx) }

// cancelHandlers has all handlers return, and gives them a moment to do so.
func (c *contexts) cancelHandlers(cause error) {
	c.stopLaunch()
	c.cancel(cause)
	c.giveUp = time.After(cancelGrace)
}

// end cancels what the run has left.
func (c *contexts) end() {
	c.stopLaunch()
	c.cancel(ErrRunEnded)
}
