package pgtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/schema"
)

// template returns the name of the migrated template of this build's
// migrations, as they make it this week: with partitions from this week on. It is
// made if the server has none. Its last step is the rename: a template with that
// name is complete.
func template(t testing.TB, admin string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupLimit)
	defer cancel()
	year, week := time.Now().UTC().ISOWeek()
	name := fmt.Sprintf("pgexec_template_%s_%dw%02d", schema.Hash()[:12], year, week)
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("connect to test server: %v", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	exists, err := databaseExists(ctx, conn, name)
	if err == nil && !exists {
		err = makeTemplate(ctx, conn, withDatabase(t, admin, name+"_new"), name)
	}
	if err != nil {
		t.Fatalf("make template %s: %v", name, err)
	}
	return name
}

func databaseExists(ctx context.Context, conn *pgx.Conn, name string) (exists bool, err error) {
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	return exists, err
}

func makeTemplate(ctx context.Context, conn *pgx.Conn, newURL, name string) error {
	// The connection's end unlocks.
	if err := lockTemplate(ctx, conn, name); err != nil {
		return err
	}
	if exists, err := databaseExists(ctx, conn, name); err != nil || exists {
		return err
	}
	unfinished := pgx.Identifier{name + "_new"}.Sanitize()
	if _, err := conn.Exec(ctx, "drop database if exists "+unfinished+" with (force)"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "create database "+unfinished+" template template0"); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, newURL)
	if err != nil {
		return err
	}
	_, err = schema.Up(ctx, pool)
	pool.Close()
	if err != nil {
		return err
	}
	// No connection may be open to a template that is copied.
	if _, err := conn.Exec(ctx, "alter database "+unfinished+" with allow_connections false"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "alter database "+unfinished+" rename to "+pgx.Identifier{name}.Sanitize())
	return err
}

// lockTemplate polls: a session that waits in the server for an advisory lock
// holds a snapshot and stands in the way of others.
func lockTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	h := fnv.New64a()
	if _, err := h.Write([]byte(name)); err != nil {
		return err
	}
	key := int64(h.Sum64())
	for {
		var locked bool
		if err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", key).Scan(&locked); err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("another test program takes too long to migrate"), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
