package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func TestTurn_RetryAfterIsWaitedForDurably_C49(t *testing.T) {
	b := setup(t, `
rules:
  - when: {attempt: 1}
    error: {status: 429, retry_after: 2s}
  - reply: {text: Here I am.}
`)
	b.define("a", nil)
	b.replica()
	id := b.ask("hello")
	// Nobody owns the run while it waits, and no worker is held.
	b.eventually(`select status = 'parked' and owner is null from pgexec.runs where run_id = $1`, id)
	if got := b.answer(id); got.Text != "Here I am." {
		t.Errorf("answer %+v", got)
	}
	asked := b.model.Requests()
	if len(asked) != 2 || asked[0].Body != asked[1].Body {
		t.Errorf("asked %d times", len(asked))
	}
	waited := query[float64](b, `
		select extract(epoch from n.finished_at - (
			select (pgexec.decode(record) #>> '{attempt_failed,finished_at}')::timestamptz from pgexec.run_log l
			where l.run_id = n.run_id and pgexec.decode(record) ? 'attempt_failed'))
		from pgexec.nodes n where n.run_id = $1 and n.node_id = 'turn-1'`, id)
	if waited < 2 {
		t.Errorf("asked again after %.3f s, want 2 at least", waited)
	}
}

func TestTurn_FaultsOfTheProviderAreTriedAgain_C50(t *testing.T) {
	for name, fault := range map[string]string{
		"overloaded":       `error: {status: 529}`,
		"server":           `error: {status: 500}`,
		"cut off":          `reply: {text: a long answer that ends, chunk: 3, break: {with: cut, after: 2}}`,
		"reset":            `reply: {text: a long answer that ends, chunk: 3, break: {with: reset, after: 2}}`,
		"error in stream":  `reply: {text: So far, break: {error: {type: overloaded_error, message: Overloaded}}}`,
		"silent for a bit": `reply: {text: a long answer that ends, chunk: 3, break: {with: stall, after: 2}}`,
	} {
		for _, provider := range []string{"openai", "anthropic"} {
			t.Run(name+" "+provider, func(t *testing.T) {
				b := setup(t, "rules:\n  - when: {attempt: 1}\n    "+fault+"\n  - reply: {text: whole}\n")
				b.define("a", object{"provider": provider, "idle_timeout": "500ms"})
				b.replica()
				id := b.ask("hello")
				if got := b.answer(id); got.Text != "whole" {
					t.Errorf("answer %+v", got)
				}
				if n := query[int](b, `select attempt from pgexec.nodes where run_id = $1 and node_id = 'turn-1'`, id); n != 2 {
					t.Errorf("attempt %d, want 2", n)
				}
			})
		}
	}
}

func TestTurn_WhatNoRetryMendsFailsTheRunAndSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct{ fault, want string }{
		"quota":   {`{status: 429, type: insufficient_quota, code: insufficient_quota, message: You exceeded your current quota.}`, "add credit"},
		"bad key": {`{status: 401, code: invalid_api_key, message: Incorrect API key}`, "API key refused"},
		"model":   {`{status: 404, code: model_not_found, message: The model does not exist}`, "unknown model"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, "rules:\n  - error: "+tc.fault+"\n")
			b.define("a", nil)
			b.replica()
			run := b.wait(b.ask("hello"))
			if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, tc.want) || !strings.Contains(run.Error, "turn-1") {
				t.Errorf("run is %s: %q, want %q in it", run.Status, run.Error, tc.want)
			}
			if n := len(b.model.Requests()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestTurn_ARefusedCallIsToldToTheModel(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    error:
      status: 400
      body: '{"error": {"code": "tool_use_failed", "failed_generation": "{\"name\": \"echo\", \"arguments\": {\"n\": \"many\"}}", "message": "Failed to call a function."}}'
  - when: {result: Failed to call}
    reply: {text: sorry}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("hello")
	if got := b.answer(id); got.Text != "sorry" || got.Turns != 2 {
		t.Errorf("answer %+v", got)
	}
	if ids := b.ids(id); slices.Contains(ids, "call-1-1") {
		t.Errorf("nodes %v: the refused call was made", ids)
	}
	if n := len(b.requests()); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestTurn_AFailedRunIsRetriedFromTheFailedTurn(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: echo, args: {n: 1}}]}
  - times: 1
    error: {status: 401, code: invalid_api_key, message: Incorrect API key}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("go")
	if run := b.wait(id); run.Status != pgexec.RunFailed {
		t.Fatalf("run is %s", run.Status)
	}
	query[string](b, `select pgexec.retry($1)`, id)
	b.eventually(`select status = 'succeeded' from pgexec.runs where run_id = $1`, id)
	if got := b.answer(id); got.Text != `{"n":1}` || got.Calls != 1 {
		t.Errorf("answer %+v", got)
	}
	if n := len(b.requests()); n != 3 {
		t.Errorf("the model was asked %d times, want 3", n)
	}
}

// What the model answered is not lost, and not paid twice, because the database is away for a moment.
func TestTurn_AnAnswerOutlivesAPauseOfTheDatabase(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: hi}}]`)
	b.define("a", nil)
	for _, statement := range []string{
		`create sequence public.reads`,
		// The first read is that before the turn.
		`create or replace function pgexec.model_cost(provider text, model text, input bigint, cached_read bigint, cache_write bigint, output bigint) returns numeric
			language plpgsql as $$ begin if nextval('public.reads') in (2, 3) then raise exception 'away'; end if; return 1; end $$`,
	} {
		if _, err := b.pool.Exec(b.ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	b.replica()
	id := b.ask("hello")
	if got := b.answer(id); got.Text != "hi" {
		t.Errorf("answer %+v", got)
	}
	if n, attempt := len(b.model.Requests()), query[int](b, `select attempt from pgexec.nodes where run_id = $1 and node_id = 'turn-1'`, id); n != 1 || attempt != 1 {
		t.Errorf("the model was asked %d times in %d attempts", n, attempt)
	}
}
