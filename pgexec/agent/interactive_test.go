package agent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func (b *bundle) say(id pgexec.RunID, payload any) {
	b.t.Helper()
	if err := b.client.Signal(b.ctx, id, "message", payload, nil); err != nil {
		b.t.Fatal(err)
	}
}

func TestInteractive_WaitsForTheNextMessage(t *testing.T) {
	b := setup(t, `
rules: [{reply: {text: "you said {{last_user}}"}}]
`)
	b.define("a", object{"interactive": true})
	b.replica()
	id := b.ask("one")
	for i, payload := range []any{"two", object{"text": "two"}, object{"content": []object{{"text": "two"}}}, []object{{"text": "two"}}, object{"n": 2}} {
		b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
		b.say(id, payload)
		b.poll("the answer", func() bool { return len(b.model.Requests()) == i+2 })
	}
	b.say(id, object{"end": true})
	if got := b.answer(id); got.Text != `you said {"n": 2}` || got.Turns != 6 {
		t.Errorf("answer %+v", got)
	}
	b.requests()
	b.checkPrefixes()
}

func TestInteractive_AMessageDuringATurnIsTakenUpAtTheNext(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: slow, args: {}}]}
  - reply: {text: "{{last_user}} after {{tool_result}}"}
`)
			b.define("a", object{"provider": provider, "interactive": true, "tools": []object{kindTool("slow")}})
			begun, go_ := make(chan struct{}), make(chan struct{})
			b.replica(func(k *pgexec.Kinds) {
				pgexec.AddKind(k, "slow", func(context.Context, *pgexec.Node, json.RawMessage) (string, error) {
					close(begun)
					<-go_
					return "work", nil
				}, nil)
			})
			id := b.ask("do it")
			<-begun
			b.say(id, "and quickly")
			b.eventually(`select inbox >= 1 from pgexec.runs where run_id = $1`, id)
			close(go_)
			b.poll("the answer", func() bool { return len(b.model.Requests()) == 2 })
			b.say(id, object{"end": true})
			if got := b.answer(id); got.Text != "and quickly after work" {
				t.Errorf("answer %+v", got)
			}
			b.requests()
		})
	}
}
