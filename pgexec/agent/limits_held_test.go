package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// wantLastTurn waits until a run is paused for a limit, after a last turn that was told so and that knew of
// each of its calls; goes on with the run as resume does, and waits until it ends well.
func (b *bundle) wantLastTurn(id pgexec.RunID, reason, resume string) {
	b.t.Helper()
	if got := b.paused(id); !strings.Contains(got, reason) {
		b.t.Errorf("paused: %q, want %q in it", got, reason)
	}
	requests := b.requests()
	last := requests[len(requests)-1]
	if text := last[len(last)-1].text(); !strings.Contains(text, "No tool can be called now") || !strings.Contains(text, reason) {
		b.t.Errorf("the last turn was told %q", text)
	}
	query[string](b, resume, id)
	if got := b.answer(id); got.Text != "all done" {
		b.t.Errorf("answer after the limit was raised: %+v", got)
	}
	b.requests()
}

// The limit is reached by what is in flight, not by a turn: calls that have not begun are ended, the last turn is
// told what came of each, and only then is the run paused.
func TestLimits_ReachedInFlightHaveTheirLastTurnToo_C44(t *testing.T) {
	const script = `
rules:
  - when: {system: researcher}
    reply: {text: found it, usage: {input: 200, output: 10}}
  - when: {user: No tool can be called}
    reply: {text: "{{tool_result}}"}
  - when: {user: limit was raised}
    reply: {text: all done}
  - reply:
      usage: {input: 50, output: 5}
      calls: %s
`
	research := object{"type": "agent", "name": "research", "agent": "r"}
	approved := object{"type": "kind", "name": "echo", "kind": "echo", "parameters": object{"type": "object"}, "approval": true}
	approve := func(b *bundle, id pgexec.RunID, nodes ...string) {
		for _, node := range nodes {
			b.eventually(`select exists (select from pgexec.approvals where run_id = $1 and node_id = $2)`, id, node)
			query[string](b, `select pgexec.approve($1, $2)`, id, node)
		}
	}
	for name, tc := range map[string]struct {
		calls          string
		tools          []object
		opts           func(*pgexec.StartOpts)
		during         func(*bundle, pgexec.RunID)
		reason, resume string
		results        []string
	}{
		"a sub-agent's tokens, while a person is asked": {
			calls: `[{name: research, args: {prompt: rivers}}, {name: echo, args: {n: 2}}]`, tools: []object{research, approved},
			opts: func(o *pgexec.StartOpts) { o.Limits.MaxTokens = 260 },
			during: func(b *bundle, id pgexec.RunID) {
				b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'call-1-1')`, id)
				approve(b, id, "approval-1-2")
			},
			reason: "limit max_tokens reached: 265 of 260", resume: `select pgexec.resume($1, add_tokens => 5000)`,
			results: []string{"found it", "error: not run to its end: limit max_tokens reached: 265 of 260 tokens spent"},
		},
		"a sub-agent's cost, while another one is to be approved": {
			calls: `[{name: research, args: {prompt: rivers}}, {name: later, args: {prompt: lakes}}]`,
			tools: []object{research, {"type": "agent", "name": "later", "agent": "r", "approval": true}},
			opts:  func(o *pgexec.StartOpts) { o.Limits.MaxCostUSD = 0.002 },
			during: func(b *bundle, id pgexec.RunID) {
				b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'call-1-1')`, id)
				approve(b, id, "approval-1-2")
			},
			reason: "limit max_cost_usd reached", resume: `select pgexec.resume($1, add_cost_usd => 5)`,
			results: []string{"found it", "error: not run to its end: limit max_cost_usd reached: 0.0028 of 0.002 US dollars spent"},
		},
		"a call's tokens, while another one is to be tried again in an hour": {
			calls: `[{name: costly, args: {}}, {name: flaky, args: {}}]`, tools: []object{kindTool("costly"), kindTool("flaky")},
			opts:   func(o *pgexec.StartOpts) { o.Limits.MaxTokens = 500 },
			reason: "limit max_tokens reached: 1055 of 500", resume: `select pgexec.resume($1, add_tokens => 5000)`,
			results: []string{"spent", "error: not run to its end: limit max_tokens reached: 1055 of 500 tokens spent; its last attempt failed: not yet"},
		},
		"nodes, of which approvals are more": {
			calls: `[{name: echo, args: {n: 1}}, {name: echo, args: {n: 2}}]`, tools: []object{approved},
			opts:   func(o *pgexec.StartOpts) { o.Limits.MaxNodes = 5 },
			during: func(b *bundle, id pgexec.RunID) { approve(b, id, "approval-1-1", "approval-1-2") },
			reason: "limit max_nodes reached", resume: `select pgexec.resume($1, add_nodes => 50)`,
			results: []string{`{"n":1}`, "error: not run to its end: limit max_nodes reached: 5 of 5 nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, fmt.Sprintf(script, tc.calls))
			if _, err := b.pool.Exec(b.ctx, `insert into pgexec.model_prices (provider, model, input, output) values ('openai', 'any', 10, 20)`); err != nil {
				t.Fatal(err)
			}
			b.define("a", object{"tools": tc.tools})
			b.define("r", object{"system": "You are a researcher."})
			b.replica(addEcho, b.addCostly)
			id := b.start(object{"agent": "a", "prompt": "work"}, tc.opts)
			if tc.during != nil {
				tc.during(b, id)
			}
			b.wantLastTurn(id, tc.reason, tc.resume)
			got := query[string](b, `select text from pgexec.conversation($1) where node_id = 'turn-2' and role = 'assistant'`, id)
			for i, line := range strings.Split(got, "\n") {
				if i >= len(tc.results) || !strings.HasPrefix(line, tc.results[i]) {
					t.Errorf("result %d is %q, want %q", i+1, line, tc.results)
				}
			}
		})
	}
}

// addCostly adds a kind that spends tokens, and one that fails, once that is recorded, and is to be tried again.
func (b *bundle) addCostly(k *pgexec.Kinds) {
	pgexec.AddKind(k, "costly", func(_ context.Context, n *pgexec.Node, _ json.RawMessage) (string, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 1000})
		return "spent", nil
	}, nil)
	pgexec.AddKind(k, "flaky", func(ctx context.Context, n *pgexec.Node, _ json.RawMessage) (string, error) {
		for recorded := false; !recorded; {
			err := b.pool.QueryRow(ctx, `select exists (select from pgexec.nodes where run_id = $1 and node_id = 'call-1-1')`, n.RunID()).Scan(&recorded)
			if err != nil {
				return "", err
			}
		}
		return "", pgexec.RetryAfter(errors.New("not yet"), time.Hour)
	}, nil)
}

// A limit of time strikes while the model answers, or while a tool runs, or even before: whichever, the model is told,
// has its last turn, and goes on when there is more time.
func TestLimits_OfTimeHaveTheirLastTurn_C44(t *testing.T) {
	const soon = 400 * time.Millisecond
	wall := func(o *pgexec.StartOpts) { o.Limits.MaxWall = soon }
	deadline := func(o *pgexec.StartOpts) { o.Limits.Deadline = time.Now().Add(soon) }
	const inTurn = `
  - when: {turn: 0}
    latency: 600ms
    reply: {calls: [{name: echo, args: {n: 1}}]}
`
	const inTool = `
  - reply: {calls: [{name: slow, args: {n: 1}}, {name: echo, args: {n: 2}}]}
`
	for name, tc := range map[string]struct {
		rules, reason, resume string
		opts                  func(*pgexec.StartOpts)
	}{
		"active time, in a turn":      {inTurn, "limit max_wall", `select pgexec.resume($1, add_wall_ms => 3600000)`, wall},
		"active time, between turns":  {inTool, "limit max_wall", `select pgexec.resume($1, add_wall_ms => 3600000)`, wall},
		"the deadline, in a turn":     {inTurn, "limit deadline reached", `select pgexec.resume($1, deadline => now() + interval '1 h')`, deadline},
		"the deadline, between turns": {inTool, "limit deadline reached", `select pgexec.resume($1, deadline => now() + interval '1 h')`, deadline},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {user: No tool can be called}
    reply: {text: "this far"}
  - when: {user: limit was raised}
    reply: {text: all done}
`+tc.rules)
			b.define("a", object{"tools": []object{kindTool("slow"), kindTool("echo")}})
			b.replica(addEcho, func(k *pgexec.Kinds) {
				pgexec.AddKind(k, "slow", func(ctx context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
					budget := n.Budget()
					select { // until the limit is reached
					case <-time.After(max(budget.MaxActive-budget.Active, budget.UntilDeadline) + 10*time.Millisecond):
					case <-ctx.Done():
					}
					return in, ctx.Err()
				}, nil)
			})
			id := b.start(object{"agent": "a", "prompt": "work"}, tc.opts)
			if got := b.paused(id); !strings.Contains(got, tc.reason) {
				t.Errorf("paused: %q", got)
			}
			// Resumed without more time it is paused again, and asks nobody.
			asked := len(b.requests())
			query[string](b, `select pgexec.resume($1)`, id)
			b.eventually(`select status = 'paused' and exists (select from pgexec.nodes n where n.run_id = r.run_id and n.output ? 'paused') from pgexec.runs r where run_id = $1`, id)
			if n := len(b.requests()); n != asked {
				t.Errorf("asked %d times more", n-asked)
			}
			b.wantLastTurn(id, tc.reason, tc.resume)
		})
	}
}

// Of time, too, the model is told once that the limit is near.
func TestLimits_OfTimeAreToldWhenTheyAreNear_C44(t *testing.T) {
	for name, opts := range map[string]func(*pgexec.StartOpts){
		"max_wall": func(o *pgexec.StartOpts) { o.Limits.MaxWall = time.Hour },
		"deadline": func(o *pgexec.StartOpts) { o.Limits.Deadline = time.Now().Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 4}
    reply: {text: done}
  - reply: {calls: [{name: echo, args: {n: "{{turn}}"}}]}
`)
			b.define("a", object{"tools": []object{kindTool("echo")}})
			b.replica(addEcho)
			id := b.start(object{"agent": "a", "prompt": "work"}, func(o *pgexec.StartOpts) {
				o.Limits.SoftLimit = 1e-9
				opts(o)
			})
			b.answer(id)
			requests := b.requests()
			told := 0
			for _, m := range requests[len(requests)-1] {
				if strings.Contains(m.text(), "of 1h0m0s ("+name+") of what this run may use is used") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("told %d times, want once", told)
			}
		})
	}
}
