package sql

import _ "embed"

// What goes before the statements of hot paths.
var (
	//go:embed plan_by_key.sql
	PlanByKey string
	//go:embed plan_index_only.sql
	PlanIndexOnly string
)
