package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/pgexec/agent/definition"
)

const docs = "../../docs/agents.md"

// The examples of docs/agents.md, run in their order, give what their comments say.
func TestDocs_ExamplesRun(t *testing.T) {
	b := setup(t, doctest.Blocks(t, docs, "yaml")[0])
	b.replica()
	for _, block := range doctest.Blocks(t, docs, "sql") {
		for _, s := range doctest.Statements(strings.ReplaceAll(block, "http://127.0.0.1:9090", b.model.URL)) {
			b.example(s)
		}
	}
	b.requests()
}

func TestDocs_DefinitionsAreValid(t *testing.T) {
	t.Parallel()
	for _, block := range doctest.Blocks(t, docs, "json") {
		if _, err := definition.Parse([]byte(block)); err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
	}
}

// example runs a statement of a document. What only looks is asked again until it
// gives what the document says: the reader has taken a moment to type it.
func (b *bundle) example(s doctest.Statement) {
	b.t.Helper()
	acts := strings.Contains(s.Text, "pgexec.signal(") || strings.Contains(s.Text, "pgexec.approve(")
	if strings.Contains(s.Text, "'message'") { // after the answer before
		b.eventually(`select not exists (select from pgexec.runs where status in ('queued', 'running'))`)
	}
	deadline := time.Now().Add(patience)
	for {
		rows := b.rows(s.Text)
		switch {
		case s.Want == nil || s.Gives(rows):
			return
		case acts || time.Now().After(deadline):
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
func (b *bundle) rows(statement string) (rows []string) {
	b.t.Helper()
	conn, err := b.pool.Acquire(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(b.ctx, statement).ReadAll()
	if err != nil {
		b.t.Fatalf("%v in\n%s", err, statement)
	}
	for _, values := range results[0].Rows {
		var texts []string
		for _, v := range values {
			texts = append(texts, string(v))
		}
		rows = append(rows, strings.Join(texts, " | "))
	}
	return rows
}

// The agent of README.md is defined, and asked, as a reader would.
func TestDocs_TheAgentOfREADMEIsValid(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	for _, block := range doctest.Blocks(t, "../../README.md", "sql") {
		if !strings.Contains(block, "pgexec.agents") {
			continue
		}
		if n := strings.Count(strings.TrimSpace(block), "\n") + 1; n >= 20 {
			t.Errorf("it takes %d lines", n)
		}
		for _, s := range doctest.Statements(block) {
			b.rows(s.Text)
		}
		return
	}
	t.Error("README.md has no agent")
}
