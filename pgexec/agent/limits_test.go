package agent_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// busy calls a tool in every turn in which it may.
const busy = `
rules:
  - when: {user: No tool can be called}
    reply: {text: "this far: {{tool_result}}", usage: {input: 100, output: 10}}
  - when: {user: limit was raised, tool: echo}
    reply: {text: all done, usage: {input: 100, output: 10}}
  - reply: {calls: [{name: echo, args: {n: "{{turn}}"}}], usage: {input: 100, output: 10}}
`

func TestLimits_LastTurnThenPausedThenResumed_C44(t *testing.T) {
	for name, tc := range map[string]struct {
		limits, opts func(object, *pgexec.StartOpts)
		reason       string
		resume       string
		calls        int // that were made
	}{
		"turns": {
			limits: func(l object, _ *pgexec.StartOpts) { l["max_turns"] = 2 },
			reason: "limit max_turns reached: 2 of 2", resume: `select pgexec.resume($1, add_turns => 1)`, calls: 2,
		},
		"tool calls": {
			limits: func(l object, _ *pgexec.StartOpts) { l["max_tool_calls"] = 3 },
			reason: "limit max_tool_calls reached: 3 of 3", resume: `select pgexec.resume($1, add_tool_calls => 1)`, calls: 3,
		},
		"tokens": {
			limits: func(l object, _ *pgexec.StartOpts) { l["max_tokens"] = 300 },
			reason: "limit max_tokens reached", resume: `select pgexec.resume($1, add_tokens => 5000)`, calls: 2,
		},
		"cost": {
			limits: func(l object, _ *pgexec.StartOpts) { l["max_cost_usd"] = 0.003 },
			reason: "limit max_cost_usd reached", resume: `select pgexec.resume($1, add_cost_usd => 5)`, calls: 2,
		},
		"nodes": {
			limits: func(_ object, o *pgexec.StartOpts) { o.Limits.MaxNodes = 6 },
			reason: "limit max_nodes reached", resume: `select pgexec.resume($1, add_nodes => 50)`, calls: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, busy)
			if _, err := b.pool.Exec(b.ctx, `insert into pgexec.model_prices (provider, model, input, output) values ('openai', 'any', 10, 20)`); err != nil {
				t.Fatal(err)
			}
			limits := object{}
			opts := func(o *pgexec.StartOpts) { tc.limits(limits, o) }
			opts(&pgexec.StartOpts{})
			b.define("a", object{"tools": []object{kindTool("echo")}, "limits": limits})
			b.replica(addEcho)
			id := b.start(object{"agent": "a", "prompt": "work"}, opts)
			if reason := b.paused(id); !strings.Contains(reason, tc.reason) {
				t.Errorf("paused: %q, want %q in it", reason, tc.reason)
			}
			if n := query[int](b, `select count(*) from pgexec.nodes where run_id = $1 and kind = 'echo'`, id); n != tc.calls {
				t.Errorf("%d calls were made, want %d", n, tc.calls)
			}
			requests := b.requests()
			last := requests[len(requests)-1]
			if text := last[len(last)-1].text(); !strings.Contains(text, "No tool can be called now") {
				t.Errorf("the last turn was told %q", text)
			}

			asked := len(requests)
			// Resumed without more to spend, it is paused again and asks nobody.
			if n := query[string](b, `select pgexec.resume($1)`, id); n != "resumed" {
				t.Errorf("resume: %s", n)
			}
			b.eventually(`select status = 'paused' and exists (select from pgexec.nodes n where n.run_id = r.run_id and n.output ? 'paused') from pgexec.runs r where run_id = $1`, id)
			if n := len(b.requests()); n != asked {
				t.Errorf("asked %d times more", n-asked)
			}

			query[string](b, tc.resume, id)
			if got := b.answer(id); got.Text != "all done" {
				t.Errorf("answer after the limit was raised: %+v", got)
			}
			b.requests()
		})
	}
}

// Where the nodes end between two calls, the others are not made, and the model knows.
func TestLimits_TheLastNodeIsNotBeforeTheLastTurn_C44(t *testing.T) {
	b := setup(t, `
rules:
  - when: {user: No tool can be called}
    reply: {text: "{{tool_result}}"}
  - reply: {calls: [{name: echo, args: {n: 1}}, {name: echo, args: {n: 2}}, {name: echo, args: {n: 3}}]}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.start(object{"agent": "a", "prompt": "work"}, func(o *pgexec.StartOpts) { o.Limits.MaxNodes = 4 })
	if reason := b.paused(id); !strings.Contains(reason, "limit max_nodes reached: 4 of 4") {
		t.Errorf("paused: %s", reason)
	}
	if got := query[string](b, `select text from pgexec.conversation($1) where role = 'assistant' order by seq desc limit 1`, id); got != "{\"n\":1}\n{\"n\":2}\nerror: not run: limit max_nodes reached: 4 of 4" {
		t.Errorf("the last turn says %q", got)
	}
	b.requests()
}

func TestLimits_ASoftLimitIsToldOnce_C44(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 4}
    reply: {text: done}
  - reply: {calls: [{name: echo, args: {n: "{{turn}}"}}]}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}, "limits": object{"max_turns": 6}})
	b.replica(addEcho)
	id := b.start(object{"agent": "a", "prompt": "work"}, func(o *pgexec.StartOpts) { o.Limits.SoftLimit = 0.3 })
	b.answer(id)
	requests := b.requests()
	told := 0
	for _, m := range requests[len(requests)-1] {
		if strings.Contains(m.text(), "2 of 6 (max_turns) of what this run may use is used") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
