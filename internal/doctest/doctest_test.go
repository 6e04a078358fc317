package doctest

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
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

var (
	link    = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the names under which a document's headings can be linked to.
func anchors(doc string) map[string]bool {
	names := map[string]bool{"": true}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(doc, ""), -1) {
		names[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return names
}

// Links between the documents lead to a file, and to a heading of it.
func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("documents: %v, %v", docs, err)
	}
	for _, path := range append(docs, "../../README.md", "../../CHANGELOG.md") {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(doc), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if m[2] == "" {
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s: %s: %v", path, m[0], err)
				}
				continue
			}
			linked, err := os.ReadFile(target)
			if err != nil || !anchors(string(linked))[m[2]] {
				t.Errorf("%s: %s leads nowhere: %v", path, m[0], err)
			}
		}
	}
}
