package pgexec

import "time"

// Limits are what a run may use. They are looked at before a node starts: a run
// that has reached one lets its nodes in flight finish and is then paused, with
// the limit named, until [Client.Resume] raises it (G7). So a run may exceed a
// limit by what its nodes in flight use; a node that waits for its turn, on its
// replica or in the fleet, is none of these. A zero field is no limit.
type Limits struct {
	// MaxTokens bounds input and output tokens together, child runs included.
	MaxTokens int64
	// MaxCostUSD bounds the cost in US dollars, child runs included.
	MaxCostUSD float64
	// MaxNodes bounds the run's own nodes.
	MaxNodes int
	// MaxTurns and MaxToolCalls bound the model turns and the tool calls of an agent's
	// run itself; its definition has defaults. Other kinds do not look at them.
	MaxTurns, MaxToolCalls int
	// MaxWall bounds the time during which a replica owns the run: time in the
	// queue, parked or paused does not count. It is kept in milliseconds, rounded up.
	MaxWall time.Duration
	// Deadline is a time on the database's clock.
	Deadline time.Time
	// MaxParallel bounds the nodes in flight at once. The run waits rather than pauses.
	MaxParallel int
	// SoftLimit is the part of the tokens, cost, nodes or wall time from which
	// on [Budget] tells handlers that a limit is near. Defaults to 0.8.
	SoftLimit float64
}
