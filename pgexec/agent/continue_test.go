package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func TestContinue_AnEndedRunsConversationGoesOn(t *testing.T) {
	for _, providers := range [][2]string{{"openai", "openai"}, {"anthropic", "anthropic"}, {"openai", "anthropic"}, {"anthropic", "openai"}} {
		t.Run(strings.Join(providers[:], " then "), func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {user: first, turn: 0, api: openai}
    reply: {text: "said first", thinking: hmm, calls: [{name: echo, id: "functions.echo:0", args: {n: 1}}]}
  - when: {user: first, turn: 0}
    reply: {text: "said first", thinking: hmm, calls: [{name: echo, args: {n: 1}}]}
  - when: {user: first, turn: 1}
    reply: {text: "done first"}
  - when: {turn: 2}
    reply: {text: "second after {{prompt}}"}
  - when: {turn: 3}
    reply: {text: "third after {{prompt}}"}
`)
			b.define("a", object{"provider": providers[0], "tools": []object{kindTool("echo")}})
			b.define("b", object{"provider": providers[1]})
			b.replica(addEcho)
			first := b.ask("first")
			b.answer(first)
			second := b.start(object{"agent": "b", "prompt": "again", "continue": first})
			if got := b.answer(second); got.Text != "second after first" || got.Turns != 1 {
				t.Errorf("answer %+v", got)
			}
			third := b.start(object{"agent": "b", "prompt": "once more", "continue": second})
			if got := b.answer(third); got.Text != "third after first" {
				t.Errorf("answer %+v", got)
			}
			b.requests()
			if providers[0] == providers[1] {
				// A cache may hold what is common, if the tools are the same too.
				requests := b.requests()
				for i, m := range requests[2][:3] {
					if string(m.Content) != string(requests[1][i].Content) && m.Role != "assistant" {
						t.Errorf("message %d changed: %s, %s", i, m.Content, requests[1][i].Content)
					}
				}
			}
		})
	}
}

func TestContinue_WhatOneServerAloneKnowsIsNotSentToAnother(t *testing.T) {
	b := setup(t, `
rules:
  - when: {user: first}
    reply: {text: "said first", thinking: hmm}
  - reply: {text: "said more"}
`)
	b.define("a", nil)
	b.define("b", object{"base_url": b.model.URL + "/v1/"})
	b.replica()
	first := b.ask("first")
	b.answer(first)
	for i, name := range []string{"a", "b"} {
		b.answer(b.start(object{"agent": name, "prompt": "again", "continue": first}))
		if sent := b.model.Requests()[i+1].Body; strings.Contains(sent, "reasoning_content") != (name == "a") {
			t.Errorf("%s is sent %s", name, sent)
		}
	}
}

func TestContinue_ARunThatEndedInTheMiddleOfATurnIsValid_C46(t *testing.T) {
	b := setup(t, `
rules:
  - when: {user: first}
    reply: {calls: [{name: echo, args: {n: 1}}, {name: stuck, args: {}}, {name: nothing, args: {}}]}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{kindTool("echo"), kindTool("stuck")}})
	begun := make(chan struct{}, 1)
	b.replica(addEcho, func(k *pgexec.Kinds) {
		pgexec.AddKind(k, "stuck", func(ctx context.Context, _ *pgexec.Node, _ json.RawMessage) (json.RawMessage, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, nil)
	})
	first := b.ask("first")
	<-begun
	b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'call-1-1')`, first)
	if _, err := b.client.Cancel(b.ctx, first, "enough"); err != nil {
		t.Fatal(err)
	}
	b.wait(first)
	second := b.start(object{"agent": "a", "prompt": "what happened?", "continue": first})
	b.answer(second)
	requests := b.requests()
	last := requests[len(requests)-1]
	if got := last[2].text() + "|" + last[3].text(); !strings.Contains(got, `{"n":1}|`) || !strings.Contains(got, "not run: the run ended before") {
		t.Errorf("results %q", got)
	}
}

func TestContinue_OnlyARunOfTheSameRole(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", nil)
	b.replica()
	first := b.ask("first")
	b.answer(first)
	if _, err := b.pool.Exec(b.ctx, `update pgexec.runs set created_by = 'somebody' where run_id = $1`, first); err != nil {
		t.Fatal(err)
	}
	_, err := b.client.Start(b.ctx, "agent", object{"agent": "a", "prompt": "tell me", "continue": first}, nil)
	if err == nil || !strings.Contains(err.Error(), "is not an agent's run of yours that has ended") {
		t.Errorf("start: %v", err)
	}
}
