package schema

// Migration is one numbered step, for tests of the migrator itself.
type Migration = migration

var (
	LoadMigrations = loadMigrations
	Migrations     = migrations
	UpWith         = up
)

// NewMigration makes a migration that is not among the embedded ones.
func NewMigration(version int, name, up, down string) Migration {
	return migration{version: version, name: name, up: up, down: down}
}
