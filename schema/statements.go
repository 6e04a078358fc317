package schema

import _ "embed"

// The migrator's own statements. They are not in package sql, because they run before there is a schema.
var (
	//go:embed statements/lock_try.sql
	lockTrySQL string
	//go:embed statements/session_settings.sql
	sessionSettingsSQL string
	//go:embed statements/schema_state.sql
	schemaStateSQL string
	//go:embed statements/schema_create.sql
	schemaCreateSQL string
	//go:embed statements/schema_drop.sql
	schemaDropSQL string
	//go:embed statements/may_create_schema.sql
	mayCreateSchemaSQL string
	//go:embed statements/version_table_create.sql
	versionTableCreateSQL string
	//go:embed statements/version_table_grant.sql
	versionTableGrantSQL string
	//go:embed statements/version_table_drop.sql
	versionTableDropSQL string
	//go:embed statements/version_insert.sql
	versionInsertSQL string
	//go:embed statements/version_delete.sql
	versionDeleteSQL string
	//go:embed statements/version_list.sql
	versionListSQL string
	//go:embed statements/version_latest.sql
	versionLatestSQL string
	//go:embed statements/river_version_list.sql
	riverVersionListSQL string
	//go:embed statements/river_version_latest.sql
	riverVersionLatestSQL string
)
