package pgexec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

type none = any

func TestRun_FanOutJoinAndResult(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, width int) (int, error) {
		var legs []pgexec.NodeRef
		for i := range width {
			legs = append(legs, n.Spawn("leg", i, nil))
		}
		n.Spawn("join", nil, &pgexec.SpawnOpts{ID: "end", After: legs})
		return width, nil
	}, nil)
	pgexec.AddKind(kinds, "leg", func(_ context.Context, _ *pgexec.Node, i int) (int, error) { return i, nil }, nil)
	pgexec.AddKind(kinds, "join", func(_ context.Context, n *pgexec.Node, _ none) ([]int, error) {
		var got []int
		for _, p := range n.Parents() {
			var i int
			if err := p.Output(&i); err != nil {
				return nil, err
			}
			got = append(got, i)
		}
		return got, nil
	}, nil)
	b.replica(kinds)
	id := b.start("root", 10)
	run := b.succeed(id)
	if want := `[0,1,2,3,4,5,6,7,8,9]`; string(run.Result) != want {
		t.Errorf("result %s, want %s", run.Result, want)
	}
	if n := query[int](b, `select count(*) from pgexec.nodes where run_id = $1 and status = 'succeeded'`, id); n != 12 {
		t.Errorf("%d nodes, want 12", n)
	}
	b.checkLog(id)
}

func TestRun_RetriesUntilItSucceeds(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	var keys atomic.Value
	pgexec.AddKind(kinds, "flaky", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		if old := keys.Swap(n.IdempotencyKey()); old != nil && old != n.IdempotencyKey() {
			return 0, pgexec.Permanent(errors.New("the idempotency key changed"))
		}
		if n.Attempt() < 3 {
			return 0, fmt.Errorf("attempt %d fails", n.Attempt())
		}
		return n.Attempt(), nil
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond}})
	b.replica(kinds)
	id := b.start("flaky", nil)
	if run := b.succeed(id); string(run.Result) != "3" {
		t.Errorf("result %s, want 3", run.Result)
	}
	if key := keys.Load(); key != id.String()+"/root" {
		t.Errorf("idempotency key %v", key)
	}
	const failures = `select count(*) from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'attempt_failed'`
	if n := query[int](b, failures, id); n != 2 {
		t.Errorf("%d failed attempts in the log, want 2", n)
	}
}

func TestRun_EndsWithTheErrorOfTheNodeThatCausedIt(t *testing.T) {
	permanent := func(context.Context, *pgexec.Node, none) (int, error) {
		return 0, pgexec.Permanent(errors.New("no such customer"))
	}
	panics := func(context.Context, *pgexec.Node, none) (int, error) { panic("boom") }
	exhausted := func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		return 0, fmt.Errorf("attempt %d of 2", n.Attempt())
	}
	slow := func(ctx context.Context, _ *pgexec.Node, _ none) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	huge := func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		for i := range 8000 {
			n.Spawn("bad", nil, &pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprintf("%0200d", i))})
		}
		return 0, nil
	}
	badSpawn := func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("bad", nil, &pgexec.SpawnOpts{ID: "root"})
		return 0, nil
	}
	foreignRef := func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("bad", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{{}}})
		return 0, nil
	}
	opts := &pgexec.KindOpts{
		Retry:   pgexec.RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond},
		Timeout: time.Second,
	}
	for name, tc := range map[string]struct {
		add      func(*pgexec.Kinds)
		code     string
		attempts int
		words    []string
	}{
		"permanent": {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", permanent, opts) }, "error", 1, []string{"no such customer"}},
		"panic":     {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", panics, opts) }, "panic", 2, []string{"boom"}},
		"exhausted": {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", exhausted, opts) }, "error", 2, []string{"attempt 2 of 2"}},
		"timeout":   {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", slow, opts) }, "timeout", 2, []string{"deadline"}},
		// C22: one permanent error that names the node and the size.
		"too large":   {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", huge, opts) }, "record_too_large", 1, []string{"root", "has 1", "1048576"}},
		"bad spawn":   {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", badSpawn, opts) }, "bad_successor", 1, []string{"root"}},
		"foreign ref": {func(k *pgexec.Kinds) { pgexec.AddKind(k, "bad", foreignRef, opts) }, "bad_successor", 1, []string{"After"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			kinds := pgexec.NewKinds()
			tc.add(kinds)
			b.replica(kinds)
			id := b.start("bad", nil)
			run := b.wait(id)
			if run.Status != pgexec.RunFailed {
				t.Fatalf("run is %s", run.Status)
			}
			for _, word := range append(tc.words, "node root") {
				if !strings.Contains(run.Error, word) {
					t.Errorf("error %q does not say %q", run.Error, word)
				}
			}
			var runErr *pgexec.RunError
			if err := run.Err(); !errors.As(err, &runErr) || runErr.RunID != id {
				t.Errorf("Err returns %v", err)
			}
			const failed = `select pgexec.decode(record) from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'node'`
			var node struct {
				Node struct {
					Attempt int
					Error   struct{ Code, Stack string }
				}
			}
			if err := json.Unmarshal([]byte(query[string](b, failed, id)), &node); err != nil {
				t.Fatal(err)
			}
			if node.Node.Error.Code != tc.code || node.Node.Attempt != tc.attempts {
				t.Errorf("recorded code %q at attempt %d, want %q at %d", node.Node.Error.Code, node.Node.Attempt, tc.code, tc.attempts)
			}
			if tc.code == "panic" && !strings.Contains(node.Node.Error.Stack, "run_test.go") {
				t.Errorf("the stack does not show the handler: %s", node.Node.Error.Stack)
			}
			b.checkLog(id)
		})
	}
}

// A failure that an all-done node sees does not fail the run; nodes that need the failed one are skipped.
func TestRun_AllDoneJoinSeesTheFailure(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		bad := n.Spawn("bad", nil, &pgexec.SpawnOpts{ID: "bad"})
		needy := n.Spawn("bad", nil, &pgexec.SpawnOpts{ID: "needy", After: []pgexec.NodeRef{bad}})
		n.Spawn("report", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{bad, needy}, Join: pgexec.AllDone})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "bad", func(context.Context, *pgexec.Node, none) (int, error) {
		return 0, pgexec.Permanent(errors.New("broken"))
	}, nil)
	pgexec.AddKind(kinds, "report", func(_ context.Context, n *pgexec.Node, _ none) ([]string, error) {
		var got []string
		for _, p := range n.Parents() {
			got = append(got, fmt.Sprintf("%s %s: %v", p.ID(), p.Status(), p.Err()))
		}
		return got, nil
	}, nil)
	b.replica(kinds)
	run := b.succeed(b.start("root", nil))
	want := `["bad failed: broken","needy skipped: node needy was skipped: a parent did not succeed"]`
	if string(run.Result) != want {
		t.Errorf("result %s, want %s", run.Result, want)
	}
}

// C37: when one node fails the run, siblings in flight are still recorded, each as it finishes.
func TestRun_SiblingsOfAFailureAreRecorded(t *testing.T) {
	b := setup(t)
	gate := make(chan struct{})
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("slow", nil, nil)
		n.Spawn("bad", nil, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "slow", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		<-gate
		n.Spawn("never", nil, nil)
		return "kept", nil
	}, nil)
	pgexec.AddKind(kinds, "bad", func(context.Context, *pgexec.Node, none) (int, error) {
		return 0, pgexec.Permanent(errors.New("broken"))
	}, nil)
	pgexec.AddKind(kinds, "never", func(context.Context, *pgexec.Node, none) (int, error) {
		t.Error("a node started after the run was bound to fail")
		return 0, nil
	}, nil)
	b.replica(kinds)
	id := b.start("root", nil)
	b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and status = 'failed')`, id)
	close(gate)
	if run := b.wait(id); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "broken") {
		t.Errorf("run %s: %s", run.Status, run.Error)
	}
	if got := query[string](b, `select output #>> '{}' from pgexec.nodes where run_id = $1 and kind = 'slow'`, id); got != "kept" {
		t.Errorf("output of the sibling is %q", got)
	}
}

func TestRun_FinalOutputIsTheResult(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		n.Final()
		n.AddUsage(pgexec.Usage{InputTokens: 3, OutputTokens: 4, CostNanoUSD: 5})
		n.Spawn("after", nil, nil)
		return "the answer", nil
	}, nil)
	pgexec.AddKind(kinds, "after", func(context.Context, *pgexec.Node, none) (string, error) { return "clean up", nil }, nil)
	b.replica(kinds)
	var got string
	if err := b.succeed(b.start("root", nil)).Output(&got); err != nil || got != "the answer" {
		t.Errorf("result %q, %v", got, err)
	}
}

// C29: U+0000, lone surrogates and huge numbers pass through unharmed; psql shows a replacement.
func TestRun_BytesOfAnOutputAreNotTouched(t *testing.T) {
	b := setup(t)
	const odd = `{"nul":"a\u0000b", "lone":"\ud800", "big":123456789012345678901234567890.5e1, "z":1,"a":2}`
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "odd", func(_ context.Context, n *pgexec.Node, _ none) (json.RawMessage, error) {
		n.Spawn("pass", json.RawMessage(odd), nil)
		return json.RawMessage(odd), nil
	}, nil)
	pgexec.AddKind(kinds, "pass", func(_ context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		if out, err := n.Parents()[0].RawOutput(); err != nil || string(in) != odd || string(out) != odd {
			return nil, pgexec.Permanent(fmt.Errorf("input %s, parent's output %s (%w)", in, out, err))
		}
		return in, nil
	}, nil)
	b.replica(kinds)
	id := b.start("odd", nil)
	if run := b.succeed(id); string(run.Result) != odd {
		t.Errorf("result %s, want %s", run.Result, odd)
	}
	const shown = `select output ->> 'nul' || ' ' || (output ->> 'lone') from pgexec.nodes where run_id = $1 and node_id = 'root'`
	if got, want := query[string](b, shown, id), "a\uFFFDb \uFFFD"; got != want {
		t.Errorf("psql shows %q, want %q", got, want)
	}
	if got := query[string](b, `select result ->> 'lone' from pgexec.runs where run_id = $1`, id); got != "\uFFFD" {
		t.Errorf("the run's result shows %q", got)
	}
}

func TestRun_InputRefsTakeValuesFromAncestors(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		mid := n.Spawn("echo", "mid", &pgexec.SpawnOpts{ID: "mid"})
		n.Spawn("echo", json.RawMessage(`{"got":[{"$ref":"root#/a/1"},{"$ref":"mid#"}]}`),
			&pgexec.SpawnOpts{ID: "good", After: []pgexec.NodeRef{mid}, InputRefs: true})
		return in, nil
	}, nil)
	echo := func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) { return in, nil }
	pgexec.AddKind(kinds, "echo", echo, nil)
	b.replica(kinds)
	run := b.succeed(b.start("root", json.RawMessage(`{"a":[1,{"x":12345678901234567890}]}`)))
	if want := `{"got":[{"x": 12345678901234567890},"mid"]}`; string(run.Result) != want {
		t.Errorf("result %s, want %s", run.Result, want)
	}
	bad := b.wait(b.start("root", json.RawMessage(`{"a":[1]}`)))
	if bad.Status != pgexec.RunFailed || !strings.Contains(bad.Error, "root#/a/1") {
		t.Errorf("run %s: %s", bad.Status, bad.Error)
	}
}

// A handler may do with raw JSON what it likes, as with what [json.Unmarshal] gives it: its next attempt, and the nodes after
// it, see what the log has.
func TestRun_HandlersOwnTheirRawJSON(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	scribble := func(raw json.RawMessage) {
		for i := range raw {
			raw[i] = '9'
		}
	}
	const text = `{"a": [1, 2]}`
	var returned json.RawMessage // of the root, which the graph has taken long before the leaf starts
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		if string(in) != text {
			return nil, pgexec.Permanent(fmt.Errorf("attempt %d got %s", n.Attempt(), in))
		}
		scribble(in)
		if n.Attempt() == 1 {
			return nil, errors.New("once more")
		}
		out, input := json.RawMessage(text), json.RawMessage(text)
		n.Spawn("leaf", input, nil)
		scribble(input)
		returned = out
		return out, nil
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond}})
	pgexec.AddKind(kinds, "leaf", func(_ context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		scribble(returned)
		var out json.RawMessage
		if err := n.Parents()[0].Output(&out); err != nil {
			return nil, err
		}
		if string(in) != text || string(out) != text {
			return nil, pgexec.Permanent(fmt.Errorf("input %s, parent's output %s", in, out))
		}
		scribble(out)
		again, err := n.Parents()[0].RawOutput()
		if err != nil || string(again) != text {
			return nil, pgexec.Permanent(fmt.Errorf("parent's output is %s, %w", again, err))
		}
		return in, nil
	}, nil)
	b.replica(kinds)
	run := b.succeed(b.start("root", json.RawMessage(text)))
	if string(run.Result) != text {
		t.Errorf("result %s", run.Result)
	}
}
