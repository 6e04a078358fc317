package sql

import _ "embed"

// Statements of package throttle.
var (
	//go:embed throttle_declare.sql
	ThrottleDeclare string
	//go:embed throttle_give.sql
	ThrottleGive string
	//go:embed throttle_limits.sql
	ThrottleLimits string
	//go:embed throttle_sweep.sql
	ThrottleSweep string
	//go:embed throttle_turn.sql
	ThrottleTurn string
)
