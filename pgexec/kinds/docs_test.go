package kinds_test

import (
	"os"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/pgexec"
)

// The examples of docs/kinds.md are what a reader types first.
func TestDocs_ExamplesRun(t *testing.T) {
	b := setup(t)
	const path = "../../docs/kinds.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range doctest.Blocks(t, path, "sql") {
		statements := strings.ReplaceAll(block, "http://shop.internal:8080", b.shop.URL)
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

// The examples of these documents give what their comments say.
func TestDocs_LifeExamplesRun(t *testing.T) {
	doctest.Check(t, setup(t).pool, "../../docs/life.md", 20, nil)
}

func TestDocs_BlobsExamplesRun(t *testing.T) {
	doctest.Check(t, setup(t).pool, "../../docs/blobs.md", 5, nil)
}

func TestDocs_WorkersExamplesRun(t *testing.T) {
	doctest.Check(t, setup(t).pool, "../../docs/workers.md", 12, nil)
}

func TestDocs_LimitsExamplesRun(t *testing.T) {
	doctest.Check(t, setup(t).pool, "../../docs/limits.md", 4, nil)
}
