package doctest

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestBlocks_OfOneLanguage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "doc.md")
	doc := "# Doc\n```sql\nselect 1;\n```\ntext ```sql\n\n```go\npanic(1)\n```\n```sql\nselect 2;\nselect 3;\n```\n"
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := Blocks(t, path, "sql"), []string{"select 1;\n", "select 2;\nselect 3;\n"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStatements_WithTheRowsTheyGive(t *testing.T) {
	t.Parallel()
	got := Statements(`-- why it is asked
SELECT 1;  -- 1
INSERT INTO t VALUES ('a;b
;c');

SELECT a, b
FROM t;
-- x | y
-- z |
-- last …

-- about the next
SELECT 2;
SELECT 3`)
	want := []Statement{
		{"-- why it is asked\nSELECT 1", []string{"1"}},
		{"INSERT INTO t VALUES ('a;b\n;c')", nil},
		{"SELECT a, b\nFROM t", []string{"x | y", "z |", "last …"}},
		{"-- about the next\nSELECT 2", nil},
		{"SELECT 3", nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if s := got[2]; !s.Gives([]string{"x | y", "z |", "last of all"}) || s.Gives([]string{"x | y", "z |"}) || s.Gives([]string{"x | y", "z |", "lost"}) {
		t.Error("Gives is wrong")
	}
}
