package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	defined = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	named   = regexp.MustCompile(`\b(?:Test|Benchmark)[A-Z]\w*_\w+`)
)

// Guarantees name the tests that prove them, in package docs and in documents:
// no test is renamed or removed without them.
func TestGuarantees_NameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests, naming := make(map[string]bool), make(map[string][]byte)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" || d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range defined.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
			return err
		}
		naming[path] = text
		return err
	})
	if err != nil || len(tests) == 0 {
		t.Fatalf("%d tests: %v", len(tests), err)
	}
	for path, text := range naming {
		for _, name := range named.FindAll(text, -1) {
			if !tests[string(name)] {
				t.Errorf("%s names %s, which is no test", path, name)
			}
		}
	}
}
