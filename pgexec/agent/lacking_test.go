package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
)

// What one replica lacks fails no run while another one has it: the node that needs it is tried again there.
func TestReplica_WhatItLacksAnotherOneMayHave(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: who, args: {}}]}
  - reply: {text: "{{tool_result}}"}
`)
	dir := t.TempDir()
	b.define("a", object{
		"api_key": object{"file": filepath.Join(dir, "key")},
		"tools":   []object{{"type": "sql", "name": "who", "statement": "select current_user as me"}},
	})
	poor := b.replicaWith(agent.Config{SecretsDir: dir})
	id := b.ask("go")
	// The run waits for somebody who has the role, and nobody owns it.
	b.eventually(`select status = 'parked' and reason ~ 'root.*has no role for them.*replica of process [0-9]+ on host' from pgexec.runs where run_id = $1`, id)
	poor.drain()
	middling := b.replicaWith(agent.Config{SecretsDir: dir, SQLRole: "pg_monitor"})
	b.eventually(`select status = 'parked' and reason ~ 'turn-1.*api_key: file .*/key does not exist' from pgexec.runs where run_id = $1`, id)
	middling.drain()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("s3cret-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.replicaWith(agent.Config{SecretsDir: dir, SQLRole: "pg_monitor"})
	if got := b.answer(id); got.Text != `[{"me":"pg_monitor"}]` {
		t.Errorf("answer %+v", got)
	}
}

func TestReplica_AMCPServerThatOneLacksAnotherOneMayHave(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", object{"tools": []object{{"type": "mcp", "name": "here", "server": "here", "tools": []string{}}}})
	poor := b.replica()
	id := b.ask("go")
	b.eventually(`select status = 'parked' and reason ~ 'root.*configuration has no command of that name' from pgexec.runs where run_id = $1`, id)
	poor.drain()
	b.replicaWith(agent.Config{MCP: map[string]mcp.Server{"here": {Name: "here", Command: []string{"pgexec-no-such-program"}}}})
	b.eventually(`select status = 'parked' and reason ~ 'root.*MCP server here: start the command: .*not found.*replica of process' from pgexec.runs where run_id = $1`, id)
}
