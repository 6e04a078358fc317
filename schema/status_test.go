package schema_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/schema"
)

func TestCheck_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.EmptyDB(t)
		for _, sql := range []string{"select 1", "create schema pgexec"} {
			exec(t, pool, sql)
			var missing *schema.MissingError
			if err := schema.Check(t.Context(), pool); !errors.As(err, &missing) || !strings.Contains(err.Error(), "run `pgexec migrate up`") {
				t.Errorf("after %q: %v", sql, err)
			}
		}
	})
	t.Run("older", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		if _, err := schema.Down(t.Context(), pool, schema.Version()-1); err != nil {
			t.Fatal(err)
		}
		var older *schema.OlderError
		err := schema.Check(t.Context(), pool)
		if !errors.As(err, &older) || !strings.Contains(err.Error(), "run `pgexec migrate up`") {
			t.Fatal(err)
		}
		if older.Have != schema.Version()-1 || older.Need != schema.Version() || older.Component != schema.ComponentPgexec {
			t.Errorf("%+v", older)
		}
	})
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		exec(t, pool, "insert into pgexec.schema_migration (version, name) values ($1, 'later')", schema.Version()+1)
		var newer *schema.NewerError
		err := schema.Check(t.Context(), pool)
		if !errors.As(err, &newer) || !strings.Contains(err.Error(), "upgrade the pgexec binary") {
			t.Error(err)
		}
		if _, err := schema.Up(t.Context(), pool); !errors.As(err, &newer) {
			t.Errorf("Up: %v", err)
		}
		if _, err := schema.Down(t.Context(), pool, 0); !errors.As(err, &newer) {
			t.Errorf("Down: %v", err)
		}
	})
	t.Run("River older", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		exec(t, pool, "delete from pgexec.river_migration where version = (select max(version) from pgexec.river_migration)")
		var older *schema.OlderError
		if err := schema.Check(t.Context(), pool); !errors.As(err, &older) || older.Component != schema.ComponentRiver {
			t.Error(err)
		}
	})
	t.Run("River newer", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		exec(t, pool, "insert into pgexec.river_migration (line, version) values ('main', $1)", schema.RiverVersion()+1)
		var newer *schema.NewerError
		if err := schema.Check(t.Context(), pool); !errors.As(err, &newer) || newer.Component != schema.ComponentRiver {
			t.Error(err)
		}
	})
}

// A client that may only insert runs can still check the schema.
func TestCheck_NeedsUsageOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	role, as := newRole(t, pool)
	if err := schema.Check(t.Context(), as); err == nil || !strings.Contains(err.Error(), "permission denied for schema pgexec") {
		t.Errorf("without any right: %v", err)
	}
	exec(t, pool, "grant usage on schema pgexec to "+role)
	if err := schema.Check(t.Context(), as); err != nil {
		t.Error(err)
	}
}

func TestStatus_ListsPendingAppliedAndUnknown(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	states, err := schema.Status(t.Context(), pool)
	if err != nil || len(states) != steps() {
		t.Fatalf("%v, %v", states, err)
	}
	for _, s := range states {
		if !s.AppliedAt.IsZero() || s.Unknown || s.Name == "" {
			t.Errorf("before Up: %+v", s)
		}
	}
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "insert into pgexec.schema_migration (version, name) values ($1, 'later'), ($1 + 1, 'last')", schema.Version()+1)
	if states, err = schema.Status(t.Context(), pool); err != nil || len(states) != steps()+2 {
		t.Fatalf("%v, %v", states, err)
	}
	for i, s := range states {
		if time.Since(s.AppliedAt) > time.Minute || s.Unknown != (i >= steps()) {
			t.Errorf("after Up: %+v", s)
		}
	}
	if last := states[len(states)-1]; last.Name != "last" || last.Version != schema.Version()+2 || last.Component != schema.ComponentPgexec {
		t.Errorf("the last is %+v", last)
	}
}
