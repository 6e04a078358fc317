package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is what Check reads with: a pool, a connection or a transaction of pgx.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// State is one migration and whether the database has it.
type State struct {
	Component string
	Version   int
	Name      string
	// AppliedAt is the database's time of the migration; zero while it is pending.
	AppliedAt time.Time
	// Unknown says that a newer binary applied it.
	Unknown bool
}

// MissingError says that the database has no pgexec schema.
type MissingError struct {
	Database string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("database %q has no pgexec schema: run `pgexec migrate up`", e.Database)
}

// OlderError says that the schema lacks migrations this binary needs.
type OlderError struct {
	Database, Component string
	Have, Need          int
}

func (e *OlderError) Error() string {
	return fmt.Sprintf("the %s schema of database %q is at version %d, this binary needs version %d: run `pgexec migrate up`",
		e.Component, e.Database, e.Have, e.Need)
}

// NewerError says that a newer binary has migrated the schema.
type NewerError struct {
	Database, Component string
	Have, Need          int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("the %s schema of database %q is at version %d, this binary knows it up to version %d: upgrade the pgexec binary",
		e.Component, e.Database, e.Have, e.Need)
}

// versions is what a database has of the schema.
type versions struct {
	database            string
	hasSchema, hasTable bool
	pgexec, river       int
	// riverHidden says that this role may not read River's version: that of a client, which needs nothing of River.
	riverHidden bool
}

// Check says whether the schema is the one this binary needs: nil, *MissingError, *OlderError or *NewerError. A role
// needs no more than USAGE on the schema; River's version is checked for roles that may read its tables.
func Check(ctx context.Context, db DB) error {
	have, err := readVersions(ctx, db)
	if err != nil {
		return err
	}
	if !have.hasTable || have.pgexec == 0 {
		return &MissingError{Database: have.database}
	}
	need := Version()
	if err := have.checkNotNewer(need); err != nil {
		return err
	}
	if have.pgexec < need {
		return &OlderError{have.database, ComponentPgexec, have.pgexec, need}
	}
	if river := RiverVersion(); !have.riverHidden && have.river < river {
		return &OlderError{have.database, ComponentRiver, have.river, river}
	}
	return nil
}

func (v versions) checkNotNewer(need int) error {
	if v.pgexec > need {
		return &NewerError{v.database, ComponentPgexec, v.pgexec, need}
	}
	if river := RiverVersion(); v.river > river {
		return &NewerError{v.database, ComponentRiver, v.river, river}
	}
	return nil
}

// readVersions reads what the database has, without touching a table that is not there.
func readVersions(ctx context.Context, db DB) (versions, error) {
	var v versions
	// Null when there is no such table.
	var readsOurs, readsRiver *bool
	if err := db.QueryRow(ctx, schemaStateSQL).Scan(&v.database, &v.hasSchema, &readsOurs, &readsRiver); err != nil {
		return v, fmt.Errorf("read schema state: %w", err)
	}
	v.hasTable = readsOurs != nil
	if v.hasTable {
		if err := db.QueryRow(ctx, versionLatestSQL).Scan(&v.pgexec); err != nil {
			return v, fmt.Errorf("read schema version: %w", err)
		}
	}
	v.riverHidden = readsRiver != nil && !*readsRiver
	if readsRiver != nil && *readsRiver {
		if err := db.QueryRow(ctx, riverVersionLatestSQL).Scan(&v.river); err != nil {
			return v, fmt.Errorf("read River's schema version: %w", err)
		}
	}
	return v, nil
}

// Status lists every migration, River's first: those this binary has, and those that a newer one applied.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]State, error) {
	have, err := readVersions(ctx, pool)
	if err != nil {
		return nil, err
	}
	var river, ours []State
	for _, m := range riverMigrations() {
		river = append(river, State{Component: ComponentRiver, Version: m.Version, Name: m.Name})
	}
	for _, m := range migrations() {
		ours = append(ours, State{Component: ComponentPgexec, Version: m.version, Name: m.name})
	}
	if have.river > 0 {
		if river, err = markApplied(ctx, pool, river, riverVersionListSQL); err != nil {
			return nil, err
		}
	}
	if have.pgexec > 0 {
		if ours, err = markApplied(ctx, pool, ours, versionListSQL); err != nil {
			return nil, err
		}
	}
	return append(river, ours...), nil
}

// markApplied fills in the times of applied migrations, and adds those the binary does not know. states hold
// versions 1, 2, 3 … of one component.
func markApplied(ctx context.Context, pool *pgxpool.Pool, states []State, list string) ([]State, error) {
	component := states[0].Component
	rows, err := pool.Query(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("list applied migrations: %w", err)
	}
	var s State
	_, err = pgx.ForEachRow(rows, []any{&s.Version, &s.Name, &s.AppliedAt}, func() error {
		if s.Version <= len(states) && !states[s.Version-1].Unknown {
			states[s.Version-1].AppliedAt = s.AppliedAt
			return nil
		}
		s.Component, s.Unknown = component, true
		states = append(states, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list applied migrations: %w", err)
	}
	return states, nil
}
