package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgexec/runtime/schema"
)

// What docs/cli.md shows of migrations is what this program says.
func TestDocs_VersionsOfTheSchemaAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	newest, err := filepath.Glob(fmt.Sprintf("../../schema/migrations/%03d_*.up.sql", schema.Version()))
	if err != nil || len(newest) != 1 {
		t.Fatalf("migration %d: %v, %v", schema.Version(), newest, err)
	}
	number, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(newest[0]), ".up.sql"), "_")
	for _, words := range []string{
		fmt.Sprintf("applied pgexec %s %s (", number, name),
		fmt.Sprintf("nothing to do: the schema is at version %d\n", schema.Version()),
		fmt.Sprintf("needs schema %d, River's schema %d\n", schema.Version(), schema.RiverVersion()),
	} {
		if !strings.Contains(string(text), words) {
			t.Errorf("docs/cli.md lacks %q", words)
		}
	}
}
