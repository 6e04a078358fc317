package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestCost_IsThatOfThePriceTable(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `rules: [{reply: {text: hi, usage: {input: 1200, cached: 1000, cache_write: 100, output: 90, reasoning: 40}}}]`)
			b.define("a", object{"provider": provider})
			if _, err := b.pool.Exec(b.ctx, `insert into pgexec.model_prices (provider, model, input, cached, cache_write, output) values ($1, 'an*', 10, 1, 12.5, 20)`, provider); err != nil {
				t.Fatal(err)
			}
			b.replica()
			id := b.ask("hello")
			b.answer(id)
			out := b.output(id, "turn-1")
			if out["cost_usd"] != "0.00505" { // 100 plain, 1000 cached, 100 written, 90 out
				t.Errorf("cost %v", out["cost_usd"])
			}
			usage, _ := out["usage"].(object)
			for name, want := range map[string]float64{"input": 1200, "cached_read": 1000, "cache_write": 100, "output": 90, "reasoning": 40} {
				if usage[name] != want {
					t.Errorf("%s is %v, want %v", name, usage[name], want)
				}
			}
			run := b.wait(id)
			if s := run.Spent; s.InputTokens != 1200 || s.OutputTokens != 90 || s.CostNanoUSD != 5_050_000 {
				t.Errorf("spent %+v", s)
			}
		})
	}
}

func TestCost_AnUnknownPriceIsSeenAsSuch(t *testing.T) {
	b := setup(t, `
rules:
  - {when: {user: hello, turn: 0}, reply: {calls: [{name: helper, args: {prompt: help}}]}}
  - {reply: {text: hi}}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "helper", "agent": "cheap"}}})
	b.define("cheap", object{"model": "cheap"})
	if _, err := b.pool.Exec(b.ctx, `insert into pgexec.model_prices (provider, model, input, output) values ('openai', 'any', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	b.replica()
	id := b.ask("hello")
	b.answer(id)
	if cost := b.output(id, "turn-1")["cost_usd"]; cost == nil {
		t.Error("the price of the agent's own model is not known")
	}
	// That of the sub-agent's is not, and so neither is the whole.
	if !query[bool](b, `select cost_usd is null and unpriced = 1 and tokens > 0 from pgexec.run_overview where run_id = $1`, id) {
		t.Error("run_overview has a cost")
	}
	if got := query[string](b, `select string_agg(node_id, ' ' order by seq) from pgexec.nodes where run_id = $1 and cost_usd is null`, id); got != "call-1-1" {
		t.Errorf("nodes without a cost: %s", got)
	}
	if spent := b.wait(id).Spent; spent.Unpriced != 1 || spent.CostNanoUSD == 0 {
		t.Errorf("spent %+v", spent)
	}
	child := query[string](b, `select run_id::text from pgexec.runs where parent_run_id = $1`, id)
	if !query[bool](b, `select count(*) = 1 and bool_and(cost_usd is null) from pgexec.conversation($1) where role = 'assistant'`, child) {
		t.Error("the sub-agent's turn has a cost")
	}
	if n := query[int](b, `select unpriced from pgexec.runs where run_id = $1`, id); n != 1 {
		t.Errorf("%d turns without a price, want 1", n)
	}
}

func TestCost_IsSeenWhileTheRunWaits(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi, usage: {input: 100, output: 10}}}]`)
	b.define("a", object{"interactive": true})
	b.replica()
	id := b.ask("hello")
	b.eventually(`select status = 'parked' and tokens = 110 and cost_usd is null and unpriced = 1 and nodes_done = 2 from pgexec.run_overview where run_id = $1`, id)
}

func TestSecrets_AreInNoRecord(t *testing.T) {
	const key = "sk-very-secret-0123456789"
	t.Setenv("H_TEST_API_KEY", key)
	t.Setenv("H_TEST_TOKEN", "header-secret-42")
	b := setupSerial(t, `
api_key: another-key
rules: [{reply: {text: hi}}]
`)
	b.define("a", object{
		"api_key": object{"env": "H_TEST_API_KEY"},
		"headers": object{"X-Team": object{"env": "H_TEST_TOKEN", "prefix": "Team "}},
	})
	b.replica()
	run := b.wait(b.ask("hello"))
	if !strings.Contains(run.Error, "API key refused") {
		t.Fatalf("run is %s: %s", run.Status, run.Error)
	}
	if got := b.model.Requests()[0].Header.Get("X-Team"); got != "(not kept)" {
		t.Errorf("header %q", got)
	}
	for _, secret := range []string{key, "header-secret-42", "very-secret"} {
		if query[bool](b, `select exists (select from pgexec.run_log where position(convert_to($1, 'UTF8') in record) > 0)
			or exists (select from pgexec.runs r where strpos(r::text, $1) > 0)`, secret) {
			t.Errorf("%q is in the database", secret)
		}
	}
}

func TestSecrets_AMissingOneFailsWithWords(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", object{"api_key": object{"env": "H_NOT_SET_API_KEY"}, "max_attempts": 1})
	b.replica()
	run := b.wait(b.ask("hello"))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"variable H_NOT_SET_API_KEY is not set", fmt.Sprintf("[replica of process %d on host %s]", os.Getpid(), host)} {
		if !strings.Contains(run.Error, want) {
			t.Errorf("run is %s: %s", run.Status, run.Error)
		}
	}
}

func TestModel_ObeysTheAllowList(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", object{"base_url": "http://127.0.0.2:9/v1"})
	b.replica()
	run := b.wait(b.ask("hello"))
	if !strings.Contains(run.Error, "127.0.0.2") || len(b.ids(run.ID)) != 2 {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
}
