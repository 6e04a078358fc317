package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func TestCompact_ALongConversationIsSummarisedAndGoesOn(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {system: You summarise}
    reply: {text: "SUMMARY {{last_user}}", usage: {input: 900, output: 50}}
  - when: {prompt: SUMMARY, turn: 3}
    reply: {text: "finished {{prompt}}", usage: {input: 10, output: 10}}
  - when: {prompt: SUMMARY}
    reply: {calls: [{name: echo, args: {n: after}}], usage: {input: 100, output: 20}}
  - when: {turn: 3}
    reply: {calls: [{name: echo, args: {n: big}}], usage: {input: 750, output: 60}}
  - reply: {calls: [{name: echo, args: {n: "turn {{turn}}"}}], usage: {input: 100, output: 20}}
`)
			b.define("a", object{
				"provider": provider, "tools": []object{kindTool("echo")},
				"context": object{"window": 1000, "compact_at": 0.8, "keep_turns": 2},
			})
			b.replica(addEcho)
			id := b.ask("the task")
			got := b.answer(id)
			out := b.output(id, "compact-4")
			summary, _ := out["summary"].(string)
			if out["first_kept"] != float64(3) || !strings.Contains(summary, "the task") ||
				!strings.Contains(summary, "turn 1") || strings.Contains(summary, "turn 2") {
				t.Errorf("compaction %v: want it to tell of turns 1 and 2 (numbers 0 and 1) only", out)
			}
			if !strings.Contains(got.Text, "the task") {
				t.Errorf("answer %q: the prompt is gone", got.Text)
			}
			b.requests()
			if n := query[int](b, `select count(*) from pgexec.nodes where run_id = $1 and kind = 'compact'`, id); n != 1 {
				t.Errorf("%d compactions, want 1", n)
			}
			// The log still has everything, so a fork from before goes on without a summary.
			seq := query[int64](b, `select seq from pgexec.nodes where run_id = $1 and node_id = 'turn-3'`, id)
			fork := query[[16]byte](b, `select pgexec.fork($1, at_seq => $2)`, id, seq)
			b.answer(fork)
		})
	}
}

func TestCompact_AConversationThatDoesNotFitIsMadeToFit(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: You summarise}
    reply: {text: "SUMMARY"}
  - when: {turn: 3}
    error: {status: 400, code: context_length_exceeded, message: "This model's maximum context length is 1000 tokens."}
  - when: {prompt: SUMMARY}
    reply: {text: "finished: {{tool_result}}"}
  - reply: {calls: [{name: echo, args: {n: "turn {{turn}}"}}]}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("the task")
	if got := b.answer(id); got.Text != `finished: {"n":"turn 2"}` || got.Turns != 4 {
		t.Errorf("answer %+v", got)
	}
	if out := b.output(id, "turn-4"); !strings.Contains(fmt.Sprint(out["overflow"]), "maximum context length") || out["message"] != nil {
		t.Errorf("turn 4: %v", out)
	}
	if out := b.output(id, "compact-4"); out["first_kept"] != float64(3) {
		t.Errorf("compaction: %v", out)
	}
	b.requests()
}

func TestCompact_WhatStillDoesNotFitFailsWithWords(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: You summarise}
    reply: {text: "SUMMARY"}
  - error: {status: 400, code: context_length_exceeded, message: "This model's maximum context length is 1000 tokens."}
`)
	b.define("a", nil)
	b.replica()
	run := b.wait(b.ask("the task"))
	if !strings.Contains(run.Error, "turn-2") || !strings.Contains(run.Error, "conversation too long") {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
}

func TestCompact_AnInteractiveAgentSummarisesWhenTheUserIsBack(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: You summarise}
    reply: {text: "SUMMARY"}
  - when: {prompt: SUMMARY}
    reply: {text: "after {{last_user}}", usage: {input: 100, output: 20}}
  - reply: {text: "before {{last_user}}", usage: {input: 900, output: 20}}
`)
	b.define("a", object{"interactive": true, "context": object{"window": 1000}})
	b.replica()
	id := b.ask("one")
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	b.say(id, "two")
	b.poll("the answer", func() bool { return len(b.model.Requests()) == 3 })
	b.say(id, object{"end": true})
	if got := b.answer(id); got.Text != "after two" {
		t.Errorf("answer %+v", got)
	}
	b.requests()
}

func TestCompact_OneThatFailsKeepsNothingFromGoingOn(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: You summarise}
    error: {status: 400, message: You cannot do that here.}
  - when: {turn: 0}
    reply: {calls: [{name: echo, args: {n: 1}}], usage: {input: 900, output: 20}}
  - reply: {text: "done {{tool_result}}", usage: {input: 950, output: 20}}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}, "context": object{"window": 1000}})
	b.replica(addEcho)
	id := b.ask("one")
	if got := b.answer(id); got.Text != `done {"n":1}` {
		t.Errorf("answer %+v", got)
	}
	b.checkError(id, "compact-1", "You cannot do that here")
}

// checkError holds a node's error to have some words.
func (b *bundle) checkError(id any, node, words string) {
	b.t.Helper()
	if got := query[string](b, `select coalesce(error, '') from pgexec.nodes where run_id = $1 and node_id = $2`, id, node); !strings.Contains(got, words) {
		b.t.Errorf("error of %s: %q, want %q in it", node, got, words)
	}
}

// Of turns that are too long for what is always kept, fewer are kept, so that a summary makes room for more than one. Where the
// prompt alone is too long, a summary helps little, and none is made until it replaces enough.
func TestCompact_WhatIsKeptDoesNotHaveASummaryMadeEachTurn(t *testing.T) {
	const calls = 24
	for name, tc := range map[string]struct {
		prompt       string
		result       int // bytes that each call gives; the model counts a token for each four
		window, most int // most summaries
	}{
		"long turns":    {"the task", 4000, 4500, calls / 2},
		"a long prompt": {strings.Repeat("a long task. ", 2300), 100, 9000, calls / 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {system: You summarise}
    reply: {text: SUMMARY}
  - when: {result: the last one}
    reply: {text: finished}
  - reply: {calls: [{name: big, args: {}}]}
`)
			b.define("a", object{"tools": []object{kindTool("big")}, "context": object{"window": tc.window, "keep_turns": 4}})
			var called atomic.Int64
			b.replica(func(k *pgexec.Kinds) {
				pgexec.AddKind(k, "big", func(context.Context, *pgexec.Node, json.RawMessage) (string, error) {
					if called.Add(1) == calls {
						return "the last one", nil
					}
					return strings.Repeat("x", tc.result), nil
				}, nil)
			})
			id := b.ask(tc.prompt)
			if got := b.answer(id); got.Text != "finished" || got.Turns != calls+1 {
				t.Errorf("answer %+v", got)
			}
			n := query[int](b, `select count(*)::int from pgexec.nodes where run_id = $1 and kind = 'compact'`, id)
			if n == 0 || n > tc.most {
				t.Errorf("%d summaries in %d turns, want some and at most %d", n, calls+1, tc.most)
			}
			b.requests()
		})
	}
}
