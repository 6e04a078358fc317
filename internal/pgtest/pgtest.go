// Package pgtest gives each test a PostgreSQL database of its own on a real
// server, migrated and ready in about a tenth of a second.
//
// The server is the one that $PGEXEC_TEST_DATABASE_URL names; else a private one
// from the server programs installed here, shared by all test programs of this
// user that run at the time and ended a minute after the last of them. With
// neither a test is skipped, and fails if CI=true.
//
// # Guarantees
//
//   - A test's database holds what schema.Up makes, and nothing else: TestDB_MigratedAndPrivate.
//   - Sessions run in a zone that is neither UTC nor the machine's (C32): TestDB_MigratedAndPrivate.
//   - A passed test leaves no database, a failed one leaves its database: TestDB_DroppedOnPassKeptOnFailure.
//   - Programs that start at the same time share one server, which ends when
//     they have, also when they are killed: TestServer_SharedAndEndsWithItsUsers.
//
// The package is for tests; nothing else imports it.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
)

// timeZone is that of every session on a test's database: not a whole number of
// hours from UTC, so that no mistake in a zone goes unseen (C32).
const timeZone = "Asia/Kathmandu"

// setupLimit bounds what the package itself does for a test.
const setupLimit = 2 * time.Minute

// databases are the migrated databases of the tests that run.
var databases sync.Map // testing.TB -> *database

type database struct {
	once sync.Once
	name string
	pool *pgxpool.Pool
}

// DB returns a pool on the test's own migrated database. All calls of one test
// get the same pool and database; subtests have their own.
func DB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return databaseOf(t).pool
}

// URL is the address of the database of DB, for who has to connect by itself.
func URL(t testing.TB) string {
	t.Helper()
	return withDatabase(t, serverFor(t).URL, databaseOf(t).name)
}

// TCPURL is URL over TCP on 127.0.0.1, for tests that put something between.
func TCPURL(t testing.TB) string {
	t.Helper()
	return withDatabase(t, serverFor(t).TCPURL, databaseOf(t).name)
}

// EmptyDB returns a pool on a new database in which nothing was migrated.
// The pool's ConnString is the address.
func EmptyDB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	a := serverFor(t)
	return openPool(t, withDatabase(t, a.URL, clone(t, a.URL, "template0")))
}

// DBOn returns a pool on a new migrated database on the given server, for tests
// that have a server of their own.
func DBOn(t testing.TB, s *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	admin := s.URL("postgres")
	name := clone(t, admin, template(t, admin))
	return openPool(t, s.URL(name))
}

// Server starts a server for this test alone, which may restart and break it.
func Server(t testing.TB, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupLimit)
	defer cancel()
	s, err := pgserver.Start(ctx, cfg)
	var missing *pgserver.NotFoundError
	if errors.As(err, &missing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop server: %v", err)
		}
	})
	return s
}

func databaseOf(t testing.TB) *database {
	t.Helper()
	a := serverFor(t)
	v, _ := databases.LoadOrStore(t, &database{})
	db := v.(*database)
	db.once.Do(func() {
		t.Cleanup(func() { databases.Delete(t) })
		db.name = clone(t, a.URL, template(t, a.URL))
		db.pool = openPool(t, withDatabase(t, a.URL, db.name))
	})
	if db.pool == nil {
		t.FailNow() // the first call failed and has said why
	}
	return db
}

// clone makes a database from a template. It is dropped when the test has
// passed; after a failure it stays and its address is logged.
func clone(t testing.TB, admin, template string) string {
	t.Helper()
	name := databaseName(t)
	quoted := pgx.Identifier{name}.Sanitize()
	adminExec(t, admin, "create database "+quoted+" template "+pgx.Identifier{template}.Sanitize())
	t.Cleanup(func() {
		if t.Failed() {
			keepServer()
			t.Logf("the test's database is kept: psql '%s'", withDatabase(t, admin, name))
			return
		}
		adminExec(t, admin, "drop database if exists "+quoted+" with (force)")
	})
	adminExec(t, admin, "alter database "+quoted+" set timezone to '"+timeZone+"'")
	return name
}

func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("read database URL: %v", err)
	}
	cfg.MaxConns = max(cfg.MaxConns, 16)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d connections of the test's pool were not given back", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// databaseName names the test, so that a database left behind explains itself.
func databaseName(t testing.TB) string {
	const longest = 63 - len("pgexec_test__0123456789ab")
	words := strings.FieldsFunc(strings.ToLower(t.Name()), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "_")
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		t.Fatalf("name database: %v", err)
	}
	return "pgexec_test_" + name[:min(len(name), longest)] + "_" + hex.EncodeToString(random)
}

func withDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("read server URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

// adminExec runs one statement outside the test's database. It works in
// cleanups as well, when the test's context is done.
func adminExec(t testing.TB, admin, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("connect to test server: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// keepServer makes the shared server stay for longer: somebody will look.
func keepServer() {
	if leaseFile == nil {
		return
	}
	// Without the mark the server merely ends earlier.
	_ = os.WriteFile(filepath.Join(filepath.Dir(leaseFile.Name()), "kept"), nil, 0o600)
}
