package sql

import _ "embed"

// Statements of package usage.
var (
	//go:embed usage_setup.sql
	UsageSetup string
	//go:embed usage_show.sql
	UsageShow string
	//go:embed usage_settle.sql
	UsageSettle string
)
