package sql

import _ "embed"

// Statements of package kinds.
var (
	//go:embed kinds_sql_settings.sql
	KindsSQLSettings string
	//go:embed kinds_sql_types.sql
	KindsSQLTypes string
	//go:embed kinds_sql_unlock.sql
	KindsSQLUnlock string
)
