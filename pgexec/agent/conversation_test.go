package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// addFailing adds a kind that always fails.
func addFailing(k *pgexec.Kinds) {
	pgexec.AddKind(k, "broken", func(context.Context, *pgexec.Node, json.RawMessage) (json.RawMessage, error) {
		return nil, pgexec.Permanent(errors.New("the disk is full"))
	}, nil)
}

func TestConversation_KCallsHaveKResults_C45_C46(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 0}
    reply:
      calls:
        - {name: echo, args: {n: 1}}
        - {name: broken, args: {}}
        - {name: echo, raw_args: '{"n": 2, "cut'}
        - {name: nothing, args: {}}
  - when: {turn: 1}
    reply: {text: "{{tool_result}}"}
`)
			b.define("a", object{"provider": provider, "tools": []object{kindTool("echo"), kindTool("broken")}})
			b.replica(addEcho, addFailing)
			id := b.ask("go")
			got := b.answer(id)
			for _, want := range []string{`{"n":1}`, "the disk is full"} {
				if !strings.Contains(got.Text, want) {
					t.Errorf("results %q, want %q in them", got.Text, want)
				}
			}
			ids := b.ids(id)
			slices.Sort(ids)
			if want := []string{"answer", "call-1-1", "call-1-2", "root", "turn-1", "turn-2"}; !slices.Equal(ids, want) {
				t.Errorf("nodes %v, want %v: calls that cannot be made have none", ids, want)
			}
			b.requests() // the model refuses conversations that are not valid
		})
	}
}
