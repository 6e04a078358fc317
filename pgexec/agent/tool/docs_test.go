package tool_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/pgexec/agent/definition"
)

const docs = "../../../docs/agent-tools.md"

// The tools of docs/agent-tools.md are what a reader copies first.
func TestDocs_ToolsAreValid(t *testing.T) {
	t.Parallel()
	for _, block := range doctest.Blocks(t, docs, "json") {
		if strings.HasPrefix(block, `{"mcpServers"`) { // of package main
			continue
		}
		if _, err := definition.Parse([]byte(`{"provider": "openai", "model": "m", "tools": [` + block + `]}`)); err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
	}
}

// The role that the document makes is enough for the tools that it shows.
func TestDocs_TheRoleIsEnough(t *testing.T) {
	b := setupSQL(t)
	for _, block := range doctest.Blocks(t, docs, "sql") {
		block = strings.Replace(block, "CREATE ROLE agent_tools;", "", 1) // a role is of the whole server
		b.exec(strings.ReplaceAll(block, "agent_tools", b.env.SQLRole))
	}
	var tools []string
	for _, block := range doctest.Blocks(t, docs, "json") {
		if strings.Contains(block, `"type": "sql"`) {
			tools = append(tools, block)
		}
	}
	got := b.run(`"tools": [`+strings.Join(tools, ",")+`]`, call("find_orders", `{"customer": "x"}`), call("note", `{"text": "y"}`))
	want(t, got[0], "[]", false)
	want(t, got[1], "INSERT: 1 rows", false)
}
