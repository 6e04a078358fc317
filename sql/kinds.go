package sql

import _ "embed"

// Statements of package kinds.
var (
	//go:embed kinds_sql_constraints.sql
	KindsSQLConstraints string
	//go:embed kinds_sql_discard.sql
	KindsSQLDiscard string
	//go:embed kinds_sql_record.sql
	KindsSQLRecord string
	//go:embed kinds_sql_rights.sql
	KindsSQLRights string
	//go:embed kinds_sql_role.sql
	KindsSQLRole string
	//go:embed kinds_sql_settings.sql
	KindsSQLSettings string
	//go:embed kinds_sql_types.sql
	KindsSQLTypes string
	//go:embed kinds_sql_unlock.sql
	KindsSQLUnlock string
)
