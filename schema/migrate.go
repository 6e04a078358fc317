package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Components of the schema, as they appear in Applied, State and the errors of Check.
const (
	ComponentPgexec = "pgexec"
	ComponentRiver  = "river"
)

// Applied is one migration that a call of Up or Down has made.
type Applied struct {
	Component string
	Version   int
	Name      string
	Took      time.Duration
}

// txOptions do not depend on the defaults of the role.
var txOptions = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// Up brings the database to the schema this binary needs and returns what it did, nothing if it was there already.
// It is safe to call from any number of processes at once: one migrates, the others wait for it.
// A database with a newer schema is left alone: *NewerError.
//
// The role needs CREATE on the database, or to own an empty schema named pgexec. When Up fails, the
// migrations it returns are applied and stay applied; calling it again continues with the next.
func Up(ctx context.Context, pool *pgxpool.Pool) ([]Applied, error) {
	return up(ctx, pool, migrations())
}

func up(ctx context.Context, pool *pgxpool.Pool, all []migration) ([]Applied, error) {
	var applied []Applied
	err := withLock(ctx, pool, func() error {
		have, err := readVersions(ctx, pool)
		if err != nil {
			return err
		}
		if err := have.checkNotNewer(len(all)); err != nil {
			return err
		}
		if err := prepare(ctx, pool, have); err != nil {
			return err
		}
		if applied, err = riverUp(ctx, pool); err != nil {
			return err
		}
		for _, m := range all[have.pgexec:] {
			start := time.Now()
			if err := apply(ctx, pool, m); err != nil {
				return fmt.Errorf("apply migration %03d_%s: %w", m.version, m.name, err)
			}
			applied = append(applied, Applied{ComponentPgexec, m.version, m.name, time.Since(start)})
		}
		return nil
	})
	return applied, err
}

// Down undoes our migrations above version to, newest first, and returns what it did. With to = 0 nothing
// of pgexec stays: every run and every log is lost, River's tables and the schema go too. The schema itself stays,
// empty, if the role could not make it again. It fails, with everything else already removed, if the schema holds
// objects that are not pgexec's.
func Down(ctx context.Context, pool *pgxpool.Pool, to int) ([]Applied, error) {
	all := migrations()
	if to < 0 || to > len(all) {
		return nil, fmt.Errorf("migrate down to version %d: this binary knows versions 0 to %d", to, len(all))
	}
	var undone []Applied
	err := withLock(ctx, pool, func() error {
		have, err := readVersions(ctx, pool)
		if err != nil {
			return err
		}
		if err := have.checkNotNewer(len(all)); err != nil {
			return err
		}
		for _, m := range slices.Backward(all[min(to, have.pgexec):have.pgexec]) {
			start := time.Now()
			if err := undo(ctx, pool, m); err != nil {
				return fmt.Errorf("undo migration %03d_%s: %w", m.version, m.name, err)
			}
			undone = append(undone, Applied{ComponentPgexec, m.version, m.name, time.Since(start)})
		}
		if to > 0 || !have.hasSchema {
			return nil
		}
		rivers, err := riverDown(ctx, pool)
		undone = append(undone, rivers...)
		if err != nil {
			return err
		}
		return dropSchema(ctx, pool)
	})
	return undone, err
}

// inTx runs fn in a transaction that no setting of the role can bend.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, txOptions, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sessionSettingsSQL); err != nil {
			return err
		}
		return fn(tx)
	})
}

// prepare makes what our migrations and River's need to begin: the schema and the table of versions.
func prepare(ctx context.Context, pool *pgxpool.Pool, have versions) error {
	if have.hasTable {
		return nil
	}
	if err := checkEncoding(ctx, pool, have.database); err != nil {
		return err
	}
	err := inTx(ctx, pool, func(tx pgx.Tx) error {
		statements := []string{versionTableCreateSQL, versionTableGrantSQL}
		if !have.hasSchema {
			statements = slices.Insert(statements, 0, schemaCreateSQL)
		}
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create schema pgexec: %w", err)
	}
	return nil
}

// checkEncoding refuses a database that cannot hold every text. Servers that take bytes as they are, SQL_ASCII, can.
func checkEncoding(ctx context.Context, pool *pgxpool.Pool, database string) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		switch encoding := conn.Conn().PgConn().ParameterStatus("server_encoding"); encoding {
		case "", "UTF8", "SQL_ASCII": // a pooler may not say
			return nil
		default:
			return fmt.Errorf("database %q has the encoding %s, and must have UTF8: make one with createdb --template=template0 --encoding=UTF8", database, encoding)
		}
	})
}

func apply(ctx context.Context, pool *pgxpool.Pool, m migration) error {
	return inTx(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, versionInsertSQL, m.version, m.name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, m.up)
		return err
	})
}

func undo(ctx context.Context, pool *pgxpool.Pool, m migration) error {
	return inTx(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, versionDeleteSQL, m.version)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errors.New("somebody else has just undone it: run the command again")
		}
		_, err = tx.Exec(ctx, m.down)
		return err
	})
}

func dropSchema(ctx context.Context, pool *pgxpool.Pool) error {
	err := inTx(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, versionTableDropSQL); err != nil {
			return err
		}
		var mayCreate bool
		if err := tx.QueryRow(ctx, mayCreateSchemaSQL).Scan(&mayCreate); err != nil || !mayCreate {
			return err
		}
		_, err := tx.Exec(ctx, schemaDropSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop schema pgexec: %w", err)
	}
	return nil
}

// riverConfig is quiet: what River's migrator did is in what Up and Down return.
func riverConfig() *rivermigrate.Config {
	return &rivermigrate.Config{Schema: "pgexec", Logger: slog.New(slog.DiscardHandler)}
}

func riverUp(ctx context.Context, pool *pgxpool.Pool) ([]Applied, error) {
	return riverMigrate(ctx, pool, rivermigrate.DirectionUp, nil)
}

func riverDown(ctx context.Context, pool *pgxpool.Pool) ([]Applied, error) {
	return riverMigrate(ctx, pool, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
}

func riverMigrate(
	ctx context.Context, pool *pgxpool.Pool, direction rivermigrate.Direction, opts *rivermigrate.MigrateOpts,
) ([]Applied, error) {
	m, err := rivermigrate.New(riverpgxv5.New(pool), riverConfig())
	if err != nil {
		return nil, fmt.Errorf("prepare River's migrations: %w", err)
	}
	res, err := m.Migrate(ctx, direction, opts)
	if err != nil {
		return nil, fmt.Errorf("apply River's migrations: %w", err)
	}
	applied := make([]Applied, 0, len(res.Versions))
	for _, v := range res.Versions {
		applied = append(applied, Applied{ComponentRiver, v.Version, v.Name, v.Duration})
	}
	return applied, nil
}
