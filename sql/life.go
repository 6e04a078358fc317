package sql

import _ "embed"

// Statements of package wake about one run: what reaches it from outside, parking, child runs.
var (
	//go:embed life_inbox.sql
	LifeInbox string
	//go:embed life_park.sql
	LifePark string
	//go:embed life_child.sql
	LifeChild string
	//go:embed life_cancel.sql
	LifeCancel string
)
