package sql

import _ "embed"

// Statements of package wake.
var (
	//go:embed wake_due.sql
	WakeDue string
	//go:embed wake_housekeeping.sql
	WakeHousekeeping string
	//go:embed wake_nudge.sql
	WakeNudge string
	//go:embed wake_quietly.sql
	WakeQuietly string
	//go:embed wake_sweep.sql
	WakeSweep string
	//go:embed wake_usage.sql
	WakeUsage string
	//go:embed wake_tasks.sql
	WakeTasks string
	//go:embed wake_waiting.sql
	WakeWaiting string
)
