package sql_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

// statements are the names and texts of all files of this directory.
func statements(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.sql")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	if len(texts) == 0 {
		t.Fatal("no statements found")
	}
	return texts
}

// Every statement is one the migrated schema understands, and one statement only.
func TestStatements_PrepareAgainstTheSchema(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.DB(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, text := range statements(t) {
		if _, err := conn.Conn().Prepare(t.Context(), name, text); err != nil {
			t.Errorf("prepare %s: %v", name, err)
		}
	}
}

func TestStatements_BeginWithWhatTheyGuarantee(t *testing.T) {
	t.Parallel()
	for name, text := range statements(t) {
		first, _, _ := strings.Cut(text, "\n")
		if comment, ok := strings.CutPrefix(first, "-- "); !ok || strings.TrimSpace(comment) == "" {
			t.Errorf("%s begins with %q, want a comment that says what the statement guarantees", name, first)
		}
	}
}

func TestStatements_EachIsBoundOnce(t *testing.T) {
	t.Parallel()
	bindings := make(map[string]int)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*//go:embed (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			bindings[m[1]]++
		}
	}
	for name := range statements(t) {
		if bindings[name] != 1 {
			t.Errorf("%s is bound to %d variables, want 1", name, bindings[name])
		}
	}
}

// statement recognises SQL by what English does not have.
var statement = regexp.MustCompile(`(?is)^\s*(` + strings.Join([]string{
	`select\s.*(\sfrom\s|\(|\$1)`,
	`insert\s+into\s`,
	`update\s+[\w.]+\s+(\w+\s+)?set\s`,
	`delete\s+from\s`,
	`with\s+(recursive\s+)?\w+\s+(\(.*\)\s+)?as\s+(materialized\s+)?\(`,
	`(create|alter|drop)\s+(table|database|schema|role|index|view|function|type)\s`,
	`(listen|unlisten|notify)\s+\w+\s*$`,
	`set\s+(local\s+|session\s+)?\w+\s*(=|to\s)`,
	`lock\s+table\s`, `truncate\s`,
}, "|") + `)`)

// isStatement passes over what people read: errors, and what they may type in psql.
func isStatement(text string) bool {
	return statement.MatchString(text) && !strings.HasSuffix(text, ": %w") && !strings.Contains(text, "-- in psql")
}

func TestStatement_IsToldFromEnglish(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"select 1 from pgexec.runs":        true,
		"\n\tSELECT pg_notify('a', 'b')":   true,
		"with a as (select 1) delete":      true,
		"update pgexec.runs set owner = 1": true,
		"listen pgexec_log":                true,
		"drop table x":                     true,
		"drop table x: %w":                 false,
		"select a run: %w":                 false,
		"update run %s: %w":                false,
		"with a run as its parent":         false,
		"listen for hints: %w":             false,
		"set a limit":                      false,
	} {
		if got := isStatement(text); got != want {
			t.Errorf("%q is taken for SQL: %v, want %v", text, got, want)
		}
	}
}

// exempt are no part of the product: what only tests and benchmarks run.
var exempt = []string{"internal/pgtest", "internal/pgserver", "bench", "integration", "tools", "bin"}

func TestGo_HoldsNoStatements(t *testing.T) {
	t.Parallel()
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			for _, dir := range exempt {
				if path == dir {
					return fs.SkipDir
				}
			}
			if path != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			checkSource(t, root, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkSource(t *testing.T, root fs.FS, path string) {
	t.Helper()
	source, err := fs.ReadFile(root, path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err == nil && isStatement(text) {
			t.Errorf("%s: a statement in Go: %.60q; it belongs in a file of sql/", files.Position(lit.Pos()), text)
		}
		return true
	})
}

// What the client reads of a run is the same whichever statement finds it, but for inputs that are not small, which lists leave out. The list stands in each of the three: a
// statement that finds runs in all three ways would be planned for none of them.
func TestStatements_OfRunsReadTheSameColumns(t *testing.T) {
	t.Parallel()
	texts := statements(t)
	columns := func(name, from string) string {
		_, list, found := strings.Cut(texts[name], "\nselect ")
		list, _, ends := strings.Cut(list, "\nfrom "+from)
		if !found || !ends {
			t.Fatalf("%s has no list of columns before %q", name, from)
		}
		return list
	}
	want := strings.Replace(columns("client_get.sql", "pgexec.runs"), ", input,", ", pgexec.small_text(input)::jsonb as input,", 1)
	for name, from := range map[string]string{"client_list.sql": "pgexec.runs", "client_descendants.sql": "below\njoin"} {
		if got := columns(name, from); got != want {
			t.Errorf("%s reads\n%s\nclient_get.sql\n%s", name, got, want)
		}
	}
}
