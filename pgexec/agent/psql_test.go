package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// line is a message as pgexec.conversation has it.
type line struct {
	Role   string
	Text   string
	Calls  []struct{ ID string }
	CallID string
}

func (b *bundle) conversation(id any) []line {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, `select role, coalesce(text, ''), coalesce(calls, '[]'), coalesce(call_id, '') from pgexec.conversation($1)`, id)
	if err != nil {
		b.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	if err != nil {
		b.t.Fatal(err)
	}
	return lines
}

// What psql shows is what the model was sent: the same messages, calls and results, whatever became of them.
func TestPsql_TheConversationIsTheModels(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply:
      text: Let me see.
      calls:
        - {name: echo, args: {n: 1}}
        - {name: broken, args: {}}
        - {name: echo, raw_args: '{"n": 2, "cut'}
        - {name: nothing, args: {}}
        - {name: gated_echo, args: {n: 3}}
        - {name: gated_echo, args: {n: 4}}
  - when: {turn: 1}
    reply: {calls: [{name: echo, args: {n: 5}}, {name: echo, args: {n: 6}}]}
  - reply: {text: "Enough."}
`)
	b.define("a", object{"limits": object{"max_tool_calls": 7}, "tools": []object{kindTool("echo"), kindTool("broken"), gated("echo")}})
	b.replica(addEcho, addFailing)
	id := b.ask("go")
	b.eventually(`select count(*) = 2 and min(tool) = 'gated_echo' from pgexec.approvals where run_id = $1`, id)
	b.eventually(`select coalesce(waits_for, '') like 'approval-1-5 waits for an approval: %gated_echo%; approval-1-6 waits for an approval: %' from pgexec.run_overview where run_id = $1`, id)
	for _, statement := range []string{`select pgexec.approve($1, 'approval-1-5')`, `select pgexec.reject($1, 'approval-1-6', 'not today')`} {
		if _, err := b.pool.Exec(b.ctx, statement, id); err != nil {
			t.Fatal(err)
		}
	}
	b.paused(id)

	requests := b.requests()
	sent := requests[len(requests)-1]
	shown := b.conversation(id)
	if last := shown[len(shown)-1]; last.Role != "assistant" || last.Text != "Enough." {
		t.Errorf("ends with %+v", last)
	}
	count := map[string]int{}
	for _, l := range shown[:len(shown)-1] {
		role := l.Role
		if role == "note" {
			role = "user"
		}
		count[role]++
	}
	results := map[string]string{}
	for _, m := range sent {
		if m.Role != "system" {
			count[m.Role]--
		}
		if m.Role == "tool" {
			results[m.ToolCallID] = m.text()
		}
	}
	for role, n := range count {
		if n != 0 {
			t.Errorf("%d messages of role %s too many in psql", n, role)
		}
	}
	for _, l := range shown {
		if l.Role != "tool" {
			continue
		}
		was, ok := results[l.CallID]
		if !ok {
			t.Errorf("psql has a result of call %q, the model none", l.CallID)
		}
		if plain := strings.ReplaceAll(l.Text, " ", ""); json.Valid([]byte(l.Text)) && !strings.Contains(was, plain) {
			t.Errorf("call %s gave %s, the model saw %s", l.CallID, l.Text, was)
		}
		delete(results, l.CallID)
	}
	if len(results) > 0 {
		t.Errorf("psql lacks %v", results)
	}
}

// A run keeps the definition that it began with, defaults included.
func TestPsql_ARunHasItsDefinition(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", nil)
	b.replica()
	id := b.ask("go")
	b.answer(id)
	pinned, _ := b.output(id, "root")["definition"].(object)
	if pinned["max_attempts"] != 8.0 || pinned["idle_timeout"] != "1m" || pinned["model"] != "any" {
		t.Errorf("pinned %v", pinned)
	}
}
