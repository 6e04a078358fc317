package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
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

// A message without anything in it is one all the same: without it the conversation would end with the assistant's.
func TestInteractive_AMessageThatSaysNothing_C46(t *testing.T) {
	b := setup(t, `
rules:
  - when: {user: rest, turn: 4}
    reply: {calls: [{name: rest, args: {seconds: 0.001}}]}
  - reply: {text: "you said {{last_user}}"}
`)
	b.define("a", object{"provider": "anthropic", "interactive": true, "tools": []object{{"type": "sleep", "name": "rest"}}})
	b.replica()
	id := b.ask("one")
	for i, payload := range []any{nil, "", []object{}} {
		b.say(id, payload)
		b.poll("the answer", func() bool { return len(b.model.Requests()) == i+2 })
	}
	b.say(id, "rest")
	b.say(id, object{"end": true})
	b.answer(id)
	b.requests()
	if got := query[string](b, `select string_agg(text, '|' order by seq) from pgexec.conversation($1) where role in ('user', 'tool')`, id); got != `one|null|""|[]|rest|(the time is over)|{"end": true}` {
		t.Errorf("psql shows %s", got)
	}
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

func TestInteractive_AtALimitItIsPausedWithTheMessageKept_C44(t *testing.T) {
	b := setup(t, `
rules: [{reply: {text: "you said {{last_user}}"}}]
`)
	b.define("a", object{"interactive": true, "limits": object{"max_turns": 1}})
	b.replica()
	id := b.ask("one")
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	b.say(id, "two")
	if reason := b.paused(id); !strings.Contains(reason, "limit max_turns reached: 1 of 1") {
		t.Errorf("paused: %s", reason)
	}
	b.say(id, "three")
	query[string](b, `select pgexec.resume($1)`, id)
	b.eventually(`select status = 'paused' and exists (select from pgexec.nodes n where n.run_id = r.run_id and n.output ? 'paused') from pgexec.runs r where run_id = $1`, id)
	query[string](b, `select pgexec.resume($1, add_turns => 5)`, id)
	b.poll("the answer", func() bool { return len(b.model.Requests()) == 3 })
	b.say(id, object{"end": true})
	b.answer(id)
	requests := b.requests()
	last := requests[2]
	said := last[len(last)-2].text() + "|" + last[len(last)-1].text()
	if !strings.HasPrefix(said, "three|") || !strings.Contains(said, "the limit was raised") {
		t.Errorf("the model was told %q", said)
	}
}

// An image that the provider would refuse, in every later turn too, does not end the conversation.
func TestInteractive_AnImageThatCannotBeShownIsToldOf_C46(t *testing.T) {
	for provider, most := range map[string]int{"openai": 20 << 20, "anthropic": 5 << 20} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `rules: [{reply: {text: "you said {{last_user}}"}}]`)
			b.define("a", object{"provider": provider, "interactive": true})
			b.replica()
			large, err := b.client.PutBlob(b.ctx, "image/png", bytes.NewReader(make([]byte, most+1)))
			if err != nil {
				t.Fatal(err)
			}
			b.start(object{"agent": "a", "messages": []object{{"role": "user", "content": []object{
				{"text": "look"}, {"image": object{"media_type": "image/bmp", "data": []byte("BM")}}, {"image": large},
			}}}})
			b.poll("the answer", func() bool { return len(b.model.Requests()) == 1 })
			b.requests()
			for _, want := range []string{
				"an image of type image/bmp and 2 bytes is not shown",
				fmt.Sprintf("an image of type image/png and %d bytes is not shown: it must be PNG, JPEG, GIF or WebP, of up to %d bytes", most+1, most),
			} {
				if body := b.model.Requests()[0].Body; !strings.Contains(body, want) {
					t.Errorf("the model is not told %q: %s", want, body)
				}
			}
		})
	}
}
