package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// C15, C41: cancel reaches handlers in flight, with their cause, down the whole tree.
func TestCancel_ReachesTheWholeTree(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	kinds := bl.kinds("a")
	pgexec.AddKind(kinds, "nest", func(_ context.Context, n *pgexec.Node, depth int) (int, error) {
		if depth > 0 {
			n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "nest", Input: depth - 1}, nil)
		}
		n.Spawn("block", nil, nil)
		return depth, nil
	}, nil)
	b.replica(kinds)
	b.replica(kinds)
	id := b.start("nest", 3)
	for range 4 {
		receive(t, "start", bl.started)
	}
	if answer, err := b.client.Cancel(b.ctx, id, "changed my mind"); err != nil || answer != "cancelling" {
		t.Fatalf("cancel: %q, %v", answer, err)
	}
	for range 4 {
		if cause := receive(t, "cause", bl.causes); !errors.Is(cause, pgexec.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	}
	b.eventually(`select count(*) = 4 and bool_and(status = 'cancelled' and error = 'cancelled: changed my mind') from pgexec.runs`)
	if answer, err := b.client.Cancel(b.ctx, id, "again"); err != nil || answer != "already cancelled" {
		t.Errorf("cancel of a cancelled run: %q, %v", answer, err)
	}
	run := b.wait(id)
	if run.Status != pgexec.RunCancelled || run.Err() == nil {
		t.Errorf("run %s, %v", run.Status, run.Err())
	}
}

func TestCancel_WhateverTheRunDoes(t *testing.T) {
	for name, prepare := range map[string]func(b *bundle) pgexec.RunID{
		"queued for later": func(b *bundle) pgexec.RunID {
			return query[pgexec.RunID](b, `insert into pgexec.runs (kind, run_at) values ('root', now() + interval '1 day') returning run_id`)
		},
		"queued for a kind": func(b *bundle) pgexec.RunID {
			id := b.startNode("unheard of", `{}`)
			b.eventually(`select waiting_kinds is not null from pgexec.runs where run_id = $1`, id)
			return id
		},
		"parked": func(b *bundle) pgexec.RunID {
			id := b.startNode("signal", `{"name": "never"}`)
			b.eventually(isParked, id)
			return id
		},
		"paused": func(b *bundle) pgexec.RunID {
			id := b.startNode("signal", `{"name": "never"}`)
			b.eventually(isParked, id)
			if answer, err := b.client.Pause(b.ctx, id, ""); err != nil || answer != "paused" {
				b.t.Fatalf("pause: %q, %v", answer, err)
			}
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.replica(spawning(), briefly)
			id := prepare(b)
			if answer, err := b.client.Cancel(b.ctx, id, ""); err != nil || answer != "cancelling" {
				t.Fatalf("cancel: %q, %v", answer, err)
			}
			if run := b.wait(id); run.Status != pgexec.RunCancelled || run.Error != "cancelled" {
				t.Errorf("run %s: %s", run.Status, run.Error)
			}
			b.checkLog(id)
		})
	}
}

// Cancel of a run whose owner is dead works once the run is put back (C15).
func TestCancel_OrphanedRun(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	b.replica(bl.kinds("only"), named("only"))
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	query[int](b, killSessions, "only")
	if _, err := b.client.Cancel(b.ctx, id, ""); err != nil {
		t.Fatal(err)
	}
	if run := b.wait(id); run.Status != pgexec.RunCancelled {
		t.Errorf("run %s", run.Status)
	}
}

func TestPause_BetweenNodesAndResume(t *testing.T) {
	b := setup(t)
	gate, started := make(chan struct{}), make(chan struct{})
	var ran atomic.Int64
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "step", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		ran.Add(1)
		if n.ID() == pgexec.RootID {
			close(started)
		}
		<-gate
		if left > 1 {
			n.Spawn("step", left-1, nil)
		}
		return left, nil
	}, nil)
	b.replica(kinds)
	const steps = 3000 // far more than can run before the owner hears of the pause
	id := b.start("step", steps)
	receive(t, "start", started)
	if answer, err := b.client.Pause(b.ctx, id, "lunch"); err != nil || answer != "pausing" {
		t.Fatalf("pause: %q, %v", answer, err)
	}
	close(gate)
	b.eventually(`select status = 'paused' and reason = 'paused: lunch' from pgexec.runs where run_id = $1`, id)
	if answer, err := b.client.Resume(b.ctx, id, nil); err != nil || answer != "resumed" {
		t.Fatalf("resume: %q, %v", answer, err)
	}
	b.succeed(id)
	if ran.Load() != steps {
		t.Errorf("%d steps ran, want %d", ran.Load(), steps)
	}
	for verb, do := range map[string]func() (string, error){
		"pause":  func() (string, error) { return b.client.Pause(b.ctx, id, "") },
		"resume": func() (string, error) { return b.client.Resume(b.ctx, id, nil) },
		"cancel": func() (string, error) { return b.client.Cancel(b.ctx, id, "") },
		"retry":  func() (string, error) { return b.client.Retry(b.ctx, id) },
	} {
		if answer, err := do(); err != nil || !strings.Contains(answer, "succeeded") {
			t.Errorf("%s of a run that succeeded: %q, %v", verb, answer, err)
		}
	}
	b.checkLog(id)
}

// Retry runs the failed nodes again, those of child runs included, and nothing else (C39).
func TestRetry_OnlyTheFailedNodes(t *testing.T) {
	b := setup(t)
	var broken atomic.Bool
	broken.Store(true)
	var good, bad atomic.Int64
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, depth int) (int, error) {
		good.Add(1)
		var last pgexec.NodeRef
		if depth > 0 {
			last = n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "root", Input: depth - 1}, nil)
		} else {
			last = n.Spawn("fragile", nil, nil)
		}
		n.Spawn("end", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{last}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "fragile", func(context.Context, *pgexec.Node, none) (int, error) {
		bad.Add(1)
		if broken.Load() {
			return 0, pgexec.Permanent(errors.New("broken"))
		}
		return 1, nil
	}, nil)
	pgexec.AddKind(kinds, "end", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		return "end of " + string(n.Parents()[0].ID()), nil
	}, nil)
	b.replica(kinds, briefly)
	id := b.start("root", 2)
	run := b.wait(id)
	if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "broken") {
		t.Fatalf("run %s: %s", run.Status, run.Error)
	}
	b.eventually(`select count(*) = 3 and bool_and(status = 'failed') from pgexec.runs`)
	broken.Store(false)
	if answer, err := b.client.Retry(b.ctx, id); err != nil || answer != "retrying" {
		t.Fatalf("retry: %q, %v", answer, err)
	}
	if got := string(b.succeed(id).Result); got != `"end of run-1"` {
		t.Errorf("result %s", got)
	}
	if good.Load() != 3 || bad.Load() != 2 {
		t.Errorf("%d good nodes and %d fragile ones ran, want 3 and 2", good.Load(), bad.Load())
	}
	if n := query[int](b, `select count(*) from pgexec.runs`); n != 3 {
		t.Errorf("%d runs, want the same 3", n)
	}
}

func TestChild_ResultUsageAndFailure(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "parent", func(_ context.Context, n *pgexec.Node, in struct{ Good, Bad int }) (int, error) {
		var all []pgexec.NodeRef
		for i := range in.Good {
			all = append(all, n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "good", Input: i}, nil))
		}
		for range in.Bad {
			all = append(all, n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "bad"}, nil))
		}
		n.Spawn("report", nil, &pgexec.SpawnOpts{After: all, Join: pgexec.AllDone})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "good", func(_ context.Context, n *pgexec.Node, i int) (string, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 5, OutputTokens: 2, CostNanoUSD: 3})
		return fmt.Sprintf("child %d", i), nil
	}, nil)
	pgexec.AddKind(kinds, "bad", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 100})
		return "", pgexec.Permanent(errors.New("poor child"))
	}, nil)
	pgexec.AddKind(kinds, "report", func(_ context.Context, n *pgexec.Node, _ none) ([]string, error) {
		var got []string
		for _, p := range n.Parents() {
			var s string
			if err := p.Output(&s); err != nil {
				s = "failed"
			}
			got = append(got, s)
		}
		return got, nil
	}, nil)
	b.replica(kinds, briefly)
	b.replica(kinds, briefly)
	id := b.start("parent", map[string]int{"Good": 3, "Bad": 1})
	if got := string(b.succeed(id).Result); got != `["child 0","child 1","child 2","failed"]` {
		t.Errorf("result %s", got)
	}
	if got := query[string](b, `select input_tokens || ' ' || output_tokens from pgexec.runs where run_id = $1`, id); got != "115 6" {
		t.Errorf("usage of the tree is %s, want 115 6: a node that failed has spent as well", got)
	}
	const tree = `select count(*) from pgexec.runs c join pgexec.runs p on c.parent_run_id = p.run_id
		where p.run_id = $1 and c.depth = 1 and left(c.run_id::text, 13) = left(p.run_id::text, 13)`
	if n := query[int](b, tree, id); n != 4 {
		t.Errorf("%d children with their parent's time prefix, want 4", n)
	}
	b.checkLog(id)
}

func TestChild_DepthIsLimited(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "deep", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "deep"}, nil)
		return 0, nil
	}, nil)
	b.replica(kinds, briefly)
	run := b.wait(b.start("deep", nil))
	if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "8 deep") {
		t.Errorf("run %s: %s", run.Status, run.Error)
	}
	if n := query[int](b, `select max(depth) from pgexec.runs`); n != 8 {
		t.Errorf("depth %d, want 8", n)
	}
}

// A child's limits never exceed what its parent has left.
func TestChild_InheritsWhatIsLeft(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "parent", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 30})
		n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "child", MaxTokens: 1000, MaxNodes: 7}, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "child", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		return fmt.Sprintf("%d tokens, %d nodes", n.Budget().MaxTokens, n.Budget().MaxNodes), nil
	}, nil)
	b.replica(kinds, briefly)
	id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, max_tokens) values ('parent', 100) returning run_id`)
	if got := string(b.succeed(id).Result); got != `"70 tokens, 7 nodes"` {
		t.Errorf("the child saw %s", got)
	}
}

// C18: resuming a poisoned run gives it another chance of three.
func TestResume_GivesAPoisonedRunAnotherChance(t *testing.T) {
	b := setup(t)
	var starts atomic.Int32
	kinds := pgexec.NewKinds()
	m := make(mortals)
	pgexec.AddKind(kinds, "killer", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
		if starts.Add(1) > 4 {
			return 0, nil
		}
		return m.killOwner(ctx, b, n.RunID())
	}, nil)
	m.start(b, kinds, "a", "b", "c", "d", "e")
	id := b.start("killer", nil)
	b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
	if answer, err := b.client.Resume(b.ctx, id, nil); err != nil || answer != "resumed" {
		t.Fatalf("resume: %q, %v", answer, err)
	}
	b.succeed(id)
	if n := starts.Load(); n != 5 {
		t.Errorf("the node ran %d times, want 5", n)
	}
}

// What is watched has to be there: a mistyped id would be watched for ever.
func TestWatch_UnknownRunIsNamed(t *testing.T) {
	b := setup(t)
	id := pgexec.RunID{1}
	for _, err := range b.client.Watch(b.ctx, id, 0) {
		if !errors.Is(err, pgexec.ErrRunNotFound) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("error %v", err)
		}
	}
}

// A run whose row somebody deletes while it waits for its owner's next look is let go, and its slot is free.
func TestRun_DeletedByHandIsLetGo(t *testing.T) {
	b := setup(t)
	r := b.replica(spawning(), func(c *pgexec.Config) { c.Linger = time.Hour })
	id := b.startNode("signal", `{"name": "go"}`)
	b.eventually(`select exists (select from pgexec.nodes where run_id = $1)`, id)
	if _, err := b.pool.Exec(b.ctx, `delete from pgexec.runs where run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(b.ctx, `select pg_notify('pgexec_control', $1)`, id.String()); err != nil {
		t.Fatal(err)
	}
	r.cool()
}

// A deadline before 1970 is one that has passed, not none.
func TestLimits_DeadlineLongPast(t *testing.T) {
	b := setup(t)
	b.replica(spawning())
	id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input, deadline) values ('root', '{"Kind": "root", "Input": {}}', '1950-01-01') returning run_id`)
	b.eventually(`select status = 'paused' and reason like 'limit deadline reached%' from pgexec.runs where run_id = $1`, id)
}
