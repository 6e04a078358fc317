package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

func TestMigrate_UpStatusDown(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDB(t).Config().ConnString()
	db := []string{"--database-url", url}
	with := func(args ...string) []string { return append(args, db...) }

	if got := invoke(t, with("migrate", "status")...); got.code != exitFailure || !strings.Contains(got.err, "pgexec migrate up") {
		t.Errorf("status of an empty database: %+v", got)
	}
	if out := mustInvoke(t, with("migrate", "down")...); !strings.Contains(out, "nothing to undo") {
		t.Errorf("down on an empty database: %s", out)
	}
	if out := mustInvoke(t, with("migrate", "up")...); !strings.Contains(out, "applied pgexec 001 core") || !strings.Contains(out, "applied river 001") {
		t.Errorf("up: %s", out)
	}
	if out := mustInvoke(t, with("migrate", "up")...); !strings.HasPrefix(out, "nothing to do") {
		t.Errorf("second up: %s", out)
	}
	var states []migrationJSON
	if err := json.Unmarshal([]byte(mustInvoke(t, with("migrate", "status", "-o", "json")...)), &states); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.AppliedAt == nil {
			t.Errorf("not applied: %+v", s)
		}
	}
	if out := mustInvoke(t, with("migrate", "status")...); strings.Count(out, "\n") != len(states)+1 {
		t.Errorf("status: %s", out)
	}
}

// Nothing is lost without --yes, and what would be is said with its amount.
func TestMigrateDown_AsksAndSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if _, err := pool.Exec(t.Context(), "insert into pgexec.runs (kind) select 'k' from generate_series(1, 3)"); err != nil {
		t.Fatal(err)
	}
	db := []string{"--database-url", pgtest.URL(t)}
	got := invoke(t, append(db, "migrate", "down")...)
	if got.code != exitUsage || !strings.Contains(got.err, "3 runs with their logs, 3 of them not ended") || !strings.Contains(got.err, "--yes") {
		t.Errorf("without --yes: %+v", got)
	}
	got = invoke(t, append(db, "migrate", "down", "--to", "1")...)
	if got.code != exitUsage || !strings.Contains(got.err, "undo 002") {
		t.Errorf("to version 1 without --yes: %+v", got)
	}
	if out := mustInvoke(t, append(db, "migrate", "down", "--to", "1", "--yes")...); !strings.Contains(out, "undone pgexec 002") {
		t.Errorf("to version 1: %s", out)
	}
	var runs int
	if err := pool.QueryRow(t.Context(), "select count(*) from pgexec.runs").Scan(&runs); err != nil || runs != 3 {
		t.Errorf("%d runs are left: %v", runs, err)
	}
	if out := mustInvoke(t, append(db, "migrate", "down", "--yes")...); !strings.Contains(out, "undone pgexec 001") {
		t.Errorf("down: %s", out)
	}
	var exists bool
	if err := pool.QueryRow(t.Context(), "select to_regnamespace('pgexec') is not null").Scan(&exists); err != nil || exists {
		t.Errorf("the schema is left: %v", err)
	}
}

// A database without an encoding takes the schema as well.
func TestMigrate_DatabaseWithoutEncoding(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const name = "pgexec_test_sql_ascii"
	for _, statement := range []string{
		"drop database if exists " + name,
		"create database " + name + " template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'",
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	mustInvoke(t, "migrate", "up", "--database-url", as(t, pgtest.URL(t), "postgres", "", name))
	if _, err := pool.Exec(t.Context(), "drop database "+name+" with (force)"); err != nil {
		t.Fatal(err)
	}
}
