package kinds_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

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

// The examples of docs/life.md, docs/blobs.md and docs/workers.md give what their comments say.
func TestDocs_LifeExamplesRun(t *testing.T)    { checkExamples(t, "../../docs/life.md", 20) }
func TestDocs_BlobsExamplesRun(t *testing.T)   { checkExamples(t, "../../docs/blobs.md", 5) }
func TestDocs_WorkersExamplesRun(t *testing.T) { checkExamples(t, "../../docs/workers.md", 12) }

func TestDocs_LimitsExamplesRun(t *testing.T) { checkExamples(t, "../../docs/limits.md", 4) }

func checkExamples(t *testing.T, path string, least int) {
	b := setup(t)
	checked := 0
	for _, block := range doctest.Blocks(t, path, "sql") {
		for _, s := range doctest.Statements(block) {
			b.example(s)
			checked += min(len(s.Want), 1)
		}
	}
	if checked < least {
		t.Errorf("only %d examples say what they give", checked)
	}
}

// example runs a statement of a document. What only looks at runs is asked again
// until it gives what the document says: the reader has taken a moment to type it.
func (b *bundle) example(s doctest.Statement) {
	b.t.Helper()
	asks := slices.ContainsFunc([]string{"signal", "cancel", "pause", "resume", "retry"}, func(verb string) bool {
		return strings.Contains(s.Text, "pgexec."+verb+"(")
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		rows := b.rows(s.Text)
		switch {
		case s.Want == nil && (len(rows) == 0 || !strings.HasPrefix(rows[0], "ERROR:")), s.Want != nil && s.Gives(rows):
			return
		case s.Want == nil || asks || time.Now().After(deadline):
			b.t.Fatalf("%s\ngives %q, want %q", s.Text, rows, s.Want)
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatal(context.Cause(b.ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// rows runs a statement and joins each row's values, in the form psql shows, with " | ".
func (b *bundle) rows(statement string) []string {
	b.t.Helper()
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(b.ctx, statement).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return []string{"ERROR:  " + refused.Message}
	}
	if err != nil {
		b.t.Fatalf("%v in\n%s", err, statement)
	}
	var rows []string
	for _, values := range results[0].Rows {
		var texts []string
		for _, v := range values {
			if v == nil {
				v = []byte("null")
			}
			texts = append(texts, string(v))
		}
		rows = append(rows, strings.Join(texts, " | "))
	}
	return rows
}
