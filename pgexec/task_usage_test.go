package pgexec_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec"
)

// What a worker says that it has used is in the node's record, and counts once, whatever is said twice: also that of
// attempts that failed.
func TestTask_UsageIsRecordedAndCountedOnce(t *testing.T) {
	b := setup(t)
	b.declare("transcribe", `min_backoff => '0'`)
	b.replica(orchestra())
	id := b.start("album", []string{"a", "b", "c"})
	const used = `select pgexec.complete($1, 'w', '1', '{"input_tokens": 1000, "cached_tokens": 600, "output_tokens": 50, "reasoning_tokens": 20, "cost_usd": 0.004}')`
	tasks := map[string]task{}
	for range 3 {
		next := b.take("transcribe", "w", time.Hour)
		tasks[next.NodeID] = next
	}
	for range 2 { // said again after a lost answer
		if !query[bool](b, used, tasks["a"].ID) {
			t.Error("the completion does not count")
		}
	}
	// The form of before.
	if !b.complete(tasks["b"].ID, "w", "2") {
		t.Error("the completion does not count")
	}
	// Its output was refused by who asked for it, but the tokens are paid.
	query[bool](b, `select pgexec.fail($1, 'w', 'no words', usage => '{"input_tokens": 300, "output_tokens": 30}')`, tasks["c"].ID)
	again := b.take("transcribe", "w", time.Hour)
	if again.NodeID != "c" || again.Attempt != 2 {
		t.Fatalf("got %+v", again)
	}
	query[bool](b, `select pgexec.fail($1, 'w', 'never', permanent => true, usage => '{"output_tokens": 3, "cost_usd": 0.001}')`, again.ID)
	b.succeed(id)
	got := query[string](b, `select string_agg(concat_ws(' ', node_id, input_tokens, cached_tokens, output_tokens, reasoning_tokens, tokens, cost_usd::float8), '; ' order by node_id)
		from pgexec.nodes where run_id = $1 and kind = 'transcribe'`, id)
	if want := "a 1000 600 50 20 1050 0.004; b 0 0 0 0 0 0; c 0 0 3 0 3 0.001"; got != want {
		t.Errorf("nodes: %s, want %s", got, want)
	}
	got = query[string](b, `select concat_ws(' ', input_tokens, output_tokens, unpriced, coalesce(cost_usd::text, 'not known')) from pgexec.run_overview where run_id = $1`, id)
	if want := "1300 83 1 not known"; got != want {
		t.Errorf("the run has spent %s, want %s", got, want)
	}
}

// What workers use counts against the limits of the run, and raising them goes on there (G7).
func TestTask_UsageMeetsTheLimit_G7(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra())
	id, err := b.client.Start(b.ctx, "album", []string{"a"}, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 100, MaxCostUSD: 1}})
	if err != nil {
		t.Fatal(err)
	}
	query[bool](b, `select pgexec.complete($1, 'w', usage => '{"input_tokens": 90, "output_tokens": 11, "cost_usd": 0.5}')`, b.take("transcribe", "w", time.Hour).ID)
	b.eventually(`select status = 'paused' and reason = 'limit max_tokens reached: 101 of 100 tokens spent' from pgexec.runs where run_id = $1`, id)
	if _, err := b.client.Resume(b.ctx, id, &pgexec.ResumeOpts{AddTokens: 1000}); err != nil {
		t.Fatal(err)
	}
	b.succeed(id)
}

// What no column can hold is refused with its name, in whatever mode the pool speaks to the server, and the input is not blamed.
func TestStart_LimitsThatNoColumnHolds(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		opts  pgexec.StartOpts
		words string
	}{
		{pgexec.StartOpts{Limits: pgexec.Limits{MaxNodes: 3e9}}, "start run: max_nodes is 3000000000, must be at most 2147483647"},
		{pgexec.StartOpts{Limits: pgexec.Limits{MaxTurns: 3e9}}, "start run: max_turns is 3000000000, must be at most 2147483647"},
		{pgexec.StartOpts{Limits: pgexec.Limits{MaxToolCalls: 3e9}}, "start run: max_tool_calls is 3000000000, must be at most 2147483647"},
		{pgexec.StartOpts{Limits: pgexec.Limits{MaxParallel: 3e9}}, "start run: max_parallel is 3000000000, must be at most 2147483647"},
		{pgexec.StartOpts{Limits: pgexec.Limits{MaxNodes: -3e9}}, "start run: max_nodes is -3000000000, must be positive"},
		{pgexec.StartOpts{Priority: 70000}, "start run: priority is 70000, must be 1"},
	} {
		if _, err := b.client.Start(b.ctx, "k", nil, &c.opts); err == nil || !strings.HasPrefix(err.Error(), c.words) {
			t.Errorf("%v; want %s", err, c.words)
		}
	}
	id, err := b.client.Start(b.ctx, "k", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 9, MaxNodes: 9}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts  pgexec.ResumeOpts
		words string
	}{
		{pgexec.ResumeOpts{AddNodes: 3e9}, "add_nodes is 3000000000, must be at most 2147483647"},
		{pgexec.ResumeOpts{AddTurns: 3e9}, "add_turns is 3000000000, must be at most 2147483647"},
		{pgexec.ResumeOpts{AddToolCalls: 3e9}, "add_tool_calls is 3000000000, must be at most 2147483647"},
		{pgexec.ResumeOpts{AddNodes: math.MaxInt32}, "a limit would be larger than it can be (integer out of range): add less"},
		{pgexec.ResumeOpts{AddTokens: math.MaxInt64}, "a limit would be larger than it can be (bigint out of range): add less"},
	} {
		if _, err := b.client.Resume(b.ctx, id, &c.opts); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v; want %s", err, c.words)
		}
	}
}

// The client's callers read the same words as psql's.
func TestStart_RefusedInWords(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		kind  string
		opts  pgexec.StartOpts
		words string
	}{
		{"", pgexec.StartOpts{}, "kind is empty"},
		{"a#b", pgexec.StartOpts{}, `kind is "a#b", must have no #`},
		{"k", pgexec.StartOpts{Queue: "No Queue"}, `queue is "No Queue", must be lower-case letters`},
		{"k", pgexec.StartOpts{Priority: 7}, "priority is 7, must be 1"},
		{"k", pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: -1}}, "max_tokens is -1, must be positive"},
		{"k", pgexec.StartOpts{Limits: pgexec.Limits{MaxWall: -time.Hour}}, "max_wall_ms is -3600000, must be positive"},
		{"k", pgexec.StartOpts{IdempotencyKey: strings.Repeat("0123456789abcdef", 300)}, "idempotency_key has 4800 bytes, must have at most 1024"},
	} {
		_, err := b.client.Start(context.Background(), c.kind, nil, &c.opts)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v; want %s", err, c.words)
		}
	}
	// Labels that somebody inserted with values that are no texts do not keep a page from being read.
	b.exec(`insert into pgexec.runs (kind, labels) values ('k', '{"n": 1, "list": [1, 2], "none": null, "text": "t"}')`)
	list, err := b.client.List(b.ctx, nil)
	if err != nil || len(list) != 1 || list[0].Labels["n"] != "1" || list[0].Labels["list"] != "[1, 2]" || list[0].Labels["none"] != "null" || list[0].Labels["text"] != "t" {
		t.Errorf("%+v, %v", list, err)
	}
}
