package agent_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// addEcho adds a kind that returns its input.
func addEcho(k *pgexec.Kinds) {
	pgexec.AddKind(k, "echo", func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		return in, nil
	}, nil)
}

func TestLoop_ParallelCallsAndAnswer(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply:
      text: Let me look.
      calls: [{name: echo, args: {n: 1}}, {name: echo, args: {n: 2}}]
  - when: {turn: 1}
    reply: {text: "done: {{tool_result}}"}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("count")
	got := b.answer(id)
	if got.Text != "done: {\"n\":1}\n{\"n\":2}" || got.Stop != "end" || got.Turns != 2 || got.Calls != 2 {
		t.Errorf("answer: %+v", got)
	}
	ids := b.ids(id)
	slices.Sort(ids[2:4])
	want := []string{"root", "turn-1", "call-1-1", "call-1-2", "turn-2", "answer"}
	if !slices.Equal(ids, want) {
		t.Errorf("nodes %v, want %v", ids, want)
	}
	b.requests()
}

func TestLoop_ATurnsRecordDoesNotGrow_C30(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 12}
    reply: {text: done}
  - reply: {text: working, calls: [{name: echo, args: {n: 1}}, {name: echo, args: {n: 2}}], usage: {input: 10, output: 10}}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("go")
	b.answer(id)
	size := func(node string) int {
		return query[int](b, `select octet_length(l.record) from pgexec.run_log l join pgexec.nodes n using (run_id, seq) where run_id = $1 and node_id = $2`, id, node)
	}
	if second, last := size("turn-2"), size("turn-12"); last > second+50 {
		t.Errorf("turn 2 has %d bytes in the log, turn 12 %d", second, last)
	}
}

func TestLoop_ATurnOfAnotherKindOfRunFailsAtOnce(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.replica()
	for kind, input := range map[string]any{
		"turn":  object{"turn": 1},
		"graph": object{"nodes": []object{{"id": "a", "kind": "turn", "input": object{"turn": 1}}}},
	} {
		id, err := b.client.Start(b.ctx, kind, input, nil)
		if err != nil {
			t.Fatal(err)
		}
		if run := b.wait(id); !strings.HasSuffix(run.Error, "kind turn is for runs of kind agent only") {
			t.Errorf("%s: %s %s", kind, run.Status, run.Error)
		}
	}
}
