package schema_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/schema"
)

func TestMigrations_NumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	if got := len(schema.Migrations()); got == 0 || got != schema.Version() {
		t.Errorf("%d migrations, version %d", got, schema.Version())
	}
	for _, tc := range []struct {
		files string
		want  string
	}{
		{"001_a.up.sql 001_a.down.sql 002_b.up.sql 002_b.down.sql", ""},
		{"001_a.up.sql 001_a.down.sql 003_b.up.sql 003_b.down.sql", "migration 2 is missing"},
		{"002_b.up.sql 002_b.down.sql", "migration 1 is missing"},
		{"001_a.up.sql", "migration 1 (a) lacks a direction"},
		{"001_a.up.sql 001_b.down.sql", `migration 1 has two names: "a" and "b"`},
		{"001_a.sql", "ends neither in"},
		{"1_a.up.sql", "not named NNN_name"},
		{"001_.up.sql", "not named NNN_name"},
		{"abc_a.up.sql", "not named NNN_name"},
	} {
		fsys := fstest.MapFS{}
		for _, name := range strings.Fields(tc.files) {
			fsys["migrations/"+name] = &fstest.MapFile{Data: []byte("select 1")}
		}
		_, err := schema.LoadMigrations(fsys)
		if got := errorText(err); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: error %q, want %q", tc.files, got, tc.want)
		}
	}
}

func TestHash_IsThatOfTheText(t *testing.T) {
	t.Parallel()
	if a, b := schema.Hash(), schema.Hash(); a != b || len(a) != 64 {
		t.Errorf("hashes %q and %q", a, b)
	}
}

// Each statement says what it guarantees, and the server knows all it names.
func TestStatements_Prepare(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.DB(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	files, err := os.ReadDir("statements")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile("statements/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s does not begin with a comment", f.Name())
		}
		if _, err := conn.Conn().Prepare(t.Context(), f.Name(), string(text)); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
