package schema_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/schema"
)

func TestMain(m *testing.M) {
	pgtest.RunChild(map[string]func(){"migrate": migrateChild})
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// migrateChild migrates $DATABASE up as soon as its standard input ends.
func migrateChild() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE"))
	if err == nil {
		defer pool.Close()
		var applied []schema.Applied
		applied, err = schema.Up(ctx, pool)
		fmt.Println("applied", len(applied))
	}
	fmt.Println("error", err)
}

// one reads one value.
func one[T any](t testing.TB, db schema.DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// column reads the first column of all rows.
func column[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	vs, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return vs
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// within runs cond again and again until it is true.
func within(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(limit); !cond(); {
		select {
		case <-poll.C:
		case <-late:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// open is another pool on the database of pool, changed by edit.
func open(t testing.TB, pool *pgxpool.Pool, edit func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	if edit != nil {
		edit(cfg)
	}
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// newRole makes a role without any right and returns its name and a pool of its own on the database of pool.
func newRole(t testing.TB, pool *pgxpool.Pool) (string, *pgxpool.Pool) {
	t.Helper()
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	name := "pgexec_test_" + hex.EncodeToString(random)
	exec(t, pool, "create role "+name+" login password 'secret'")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, sql := range []string{"drop owned by " + name + " cascade", "drop role " + name} {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	return name, open(t, pool, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.User, cfg.ConnConfig.Password = name, "secret"
	})
}

// databaseURL is the address of the named database on the server of pool.
func databaseURL(t testing.TB, pool *pgxpool.Pool, name string) string {
	t.Helper()
	u, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
