package runlog

// Limits is what a run may spend. A field that is 0 sets no limit.
type Limits struct {
	MaxTokens, MaxCostNanoUSD, MaxNodes, MaxWallMs int64
	// DeadlineUs is a time on the database's clock, in microseconds since 1970.
	DeadlineUs int64
	// MaxParallel bounds the nodes in flight at once.
	MaxParallel int
	// SoftLimit is the part of each limit from which on it counts as near, over 0 and at most 1.
	SoftLimit float64
}
