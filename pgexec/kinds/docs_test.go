package kinds_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// The examples of docs/kinds.md are what a reader types first.
func TestDocs_ExamplesRun(t *testing.T) {
	b := setup(t)
	doc, err := os.ReadFile("../../docs/kinds.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	for _, block := range blocks {
		statements := strings.ReplaceAll(block[1], "http://shop.internal:8080", b.shop.URL)
		if _, err := b.pool.Exec(b.ctx, statements); err != nil {
			t.Fatalf("%v in\n%s", err, statements)
		}
	}
	runs, err := b.client.List(b.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(string(doc), "INSERT INTO pgexec.runs"); len(runs) != want || want < 4 {
		t.Fatalf("%d runs from %d examples", len(runs), want)
	}
	for _, run := range runs {
		b.wait(run.ID, pgexec.RunSucceeded)
	}
}
