package sql

import _ "embed"

// Statements of package wake about one run: what reaches it from outside, parking, child runs, tasks.
var (
	//go:embed life_inbox.sql
	LifeInbox string
	//go:embed life_signals.sql
	LifeSignals string
	//go:embed life_input.sql
	LifeInput string
	//go:embed life_signal_payload.sql
	LifeSignalPayload string
	//go:embed life_task_output.sql
	LifeTaskOutput string
	//go:embed life_park.sql
	LifePark string
	//go:embed life_child.sql
	LifeChild string
	//go:embed life_cancel.sql
	LifeCancel string
	//go:embed life_tasks.sql
	LifeTasks string
	//go:embed life_task_ends.sql
	LifeTaskEnds string
	//go:embed life_task_kinds.sql
	LifeTaskKinds string
	//go:embed life_task_notify.sql
	LifeTaskNotify string
)
