package agent_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/pgexec/agent/definition"
)

const docs = "../../docs/agents.md"

// The examples of docs/agents.md, run in their order, give what their comments say.
func TestDocs_ExamplesRun(t *testing.T) {
	b := setup(t, doctest.Blocks(t, docs, "yaml")[0])
	b.replica()
	doctest.Check(t, b.pool, docs, 12, func(block string) string {
		return strings.ReplaceAll(block, "http://127.0.0.1:9090", b.model.URL)
	})
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
			if _, err := b.pool.Exec(b.ctx, s.Text); err != nil {
				t.Fatalf("%v in\n%s", err, s.Text)
			}
		}
		return
	}
	t.Error("README.md has no agent")
}
