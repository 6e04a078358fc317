package agent_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// randomScript is a model that does whatever models and providers do, and comes to an end.
func randomScript(rng *rand.Rand) string {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	var b strings.Builder
	b.WriteString("rules:\n  - when: {system: You summarise}\n    reply: {text: SUMMARY}\n")
	for turn := range 12 {
		if rng.IntN(4) == 0 {
			fmt.Fprintf(&b, "  - when: {turn: %d, attempt: 1}\n    times: 1\n    %s\n", turn, pick(
				`error: {status: 429, retry_after: 10ms}`,
				`error: {status: 500}`,
				`error: {status: 400, code: context_length_exceeded, message: prompt is too long}`,
				`error: {status: 400, body: '{"error": {"code": "tool_use_failed", "failed_generation": "{\"name\": \"echo\", \"arguments\": {}}", "message": "bad call"}}'}`,
				`reply: {text: some words, chunk: 2, break: {with: cut, after: 1}}`,
			))
		}
		var calls []string
		for range rng.IntN(4) {
			calls = append(calls, pick(
				`{name: echo, args: {n: 1}}`, `{name: broken, args: {}}`, `{name: gated_echo, args: {n: 2}}`,
				`{name: echo, raw_args: '{"n": '}`, `{name: nothing, args: {}}`, `{name: echo, args: {}, id: ""}`, `{name: echo, raw_args: '[1]'}`,
			))
		}
		stop := "tool_calls"
		if rng.IntN(5) == 0 {
			stop = "max_tokens"
		}
		if len(calls) == 0 {
			calls = append(calls, `{name: echo, args: {}}`)
		}
		fmt.Fprintf(&b, "  - when: {turn: %d}\n    times: 2\n    reply: {text: %s, thinking: %s, calls: [%s], stop: %s, usage: {input: %d, output: 10}}\n",
			turn, pick(`""`, "words"), pick(`""`, "thoughts"), strings.Join(calls, ", "), stop, 100+rng.IntN(1000))
	}
	b.WriteString("  - reply: {text: done}\n")
	return b.String()
}

// decideAll decides about what is asked now: it rejects a third of it.
func (b *bundle) decideAll() (decided int) {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, `select run_id, node_id from pgexec.approvals`)
	if err != nil {
		b.t.Fatal(err)
	}
	asked, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Run  pgexec.RunID
		Node string
	}])
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range asked {
		statement := `select pgexec.approve($1, $2)`
		if strings.HasSuffix(a.Node, "1") {
			statement = `select pgexec.reject($1, $2, 'no')`
		}
		// An earlier decision may have been taken up since the look.
		if _, err := b.pool.Exec(b.ctx, statement, a.Run, a.Node); err == nil {
			decided++
		}
	}
	return decided
}

// Whatever models, tools, people, limits and replicas do, no request is one that
// a provider would refuse (C46), and every run comes to its end.
func TestRandom_EveryConversationIsValid_C46(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("PGEXEC_AGENT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("repeat with PGEXEC_AGENT_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := setup(t, `rules: [{reply: {text: unused}}]`)
	models := make(map[pgexec.RunID]*pgexectest.Model)
	for i := range 8 {
		b.model = pgexectest.NewModel(t, randomScript(rng))
		name := fmt.Sprint("agent ", i)
		b.define(name, object{
			"provider": []string{"openai", "anthropic"}[i%2],
			"tools":    []object{kindTool("echo"), kindTool("broken"), gated("echo")},
			"limits":   object{"max_turns": 3 + rng.IntN(4), "max_tool_calls": 3 + rng.IntN(8)},
			"context":  object{"window": 1000, "keep_turns": 1 + rng.IntN(3)},
		})
		models[b.start(object{"agent": name, "prompt": "go"})] = b.model
	}
	b.replica(addEcho, addFailing)
	second := b.replica(addEcho, addFailing)
	stopped := false
	b.poll("the end of all runs", func() bool {
		decided := b.decideAll()
		if n := query[int](b, `select count(pgexec.resume(run_id, add_turns => 3, add_tool_calls => 5)) from pgexec.runs where status = 'paused'`); n+decided > 0 && !stopped {
			stopped = true
			second.stop()
		}
		return query[bool](b, `select not exists (select from pgexec.runs where finished_at is null)`)
	})
	for id, model := range models {
		run := b.wait(id)
		if run.Status != pgexec.RunSucceeded {
			t.Errorf("run is %s: %s", run.Status, run.Error)
		}
		for _, r := range model.Requests() {
			if r.Problem != "" {
				t.Errorf("a request is refused: %s\n%s", r.Problem, r.Body)
			}
		}
	}
}
