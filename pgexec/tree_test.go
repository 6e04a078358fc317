package pgexec_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// A client sees what a run may spend, and which runs are below which.
func TestClient_LimitsAndTree(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "nest", func(_ context.Context, n *pgexec.Node, depth int) (int, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 3, OutputTokens: 1, CostNanoUSD: 1_500_000})
		if depth > 0 {
			for range 2 {
				n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "nest", Input: depth - 1}, nil)
			}
		}
		return depth, nil
	}, nil)
	b.replica(kinds, briefly)
	limits := pgexec.Limits{
		MaxTokens: 1000, MaxCostUSD: 0.25, MaxNodes: 50, MaxWall: 90 * time.Second,
		Deadline: time.Now().Add(time.Hour).Truncate(time.Millisecond), MaxParallel: 7, SoftLimit: 0.5,
	}
	id, err := b.client.Start(b.ctx, "nest", 2, &pgexec.StartOpts{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	b.start("nest", 0)
	run := b.succeed(id)
	if !run.Limits.Deadline.Equal(limits.Deadline) {
		t.Errorf("deadline %v, want %v", run.Limits.Deadline, limits.Deadline)
	}
	run.Limits.Deadline = limits.Deadline
	if run.Limits != limits {
		t.Errorf("limits %+v, want %+v", run.Limits, limits)
	}
	if want := (pgexec.Usage{InputTokens: 21, OutputTokens: 7, CostNanoUSD: 10_500_000}); run.Spent != want || run.NodesDone != 3 {
		t.Errorf("spent %+v and %d nodes, want %+v and 3", run.Spent, run.NodesDone, want)
	}

	roots, err := b.client.List(b.ctx, &pgexec.ListOpts{Roots: true})
	if err != nil || len(roots) != 2 || roots[1].ID != id {
		t.Errorf("roots: %v, %v", roots, err)
	}
	below, err := b.client.Descendants(b.ctx, []pgexec.RunID{id}, 100)
	if err != nil || len(below) != 6 {
		t.Fatalf("%d runs below, want 6: %v", len(below), err)
	}
	seen := map[pgexec.RunID]int{id: 0}
	for _, r := range below {
		above, ok := seen[r.ParentRunID]
		if !ok || r.Depth != above+1 || r.ParentNodeID == "" {
			t.Errorf("run %s of depth %d comes before its parent %s", r.ID, r.Depth, r.ParentRunID)
		}
		seen[r.ID] = r.Depth
		if r.Limits.MaxTokens == 0 || r.Limits.MaxTokens >= 1000 || r.Limits.SoftLimit != 0.5 {
			t.Errorf("run %s has limits %+v", r.ID, r.Limits)
		}
	}
	if some, err := b.client.Descendants(b.ctx, []pgexec.RunID{id}, 2); err != nil || len(some) != 2 || some[1].Depth != 1 {
		t.Errorf("the first two below: %v, %v", some, err)
	}
}

// What somebody wants of a run is its reason until it is done.
func TestClient_ReasonSaysWhatIsWanted(t *testing.T) {
	b := setup(t)
	id := b.start("no replica has it", nil)
	for _, want := range []struct{ sql, reason string }{
		{`select pgexec.pause($1, 'lunch')`, "paused: lunch"},
		{`select pgexec.resume($1)`, ""},
		{`select pgexec.cancel($1, 'enough')`, "being cancelled: enough"},
	} {
		answer := query[string](b, want.sql, id)
		run, err := b.client.Get(b.ctx, id)
		if err != nil || run.Reason != want.reason {
			t.Errorf("after %s, which says %q: reason %q, want %q (%v)", want.sql, answer, run.Reason, want.reason, err)
		}
	}
}

// A run that is bound to fail, or that a node has paused, starts no child run any more; a retry or a resume does.
func TestRun_ThatStopsStartsNoChild(t *testing.T) {
	for name, tc := range map[string]struct {
		stop   func(*pgexec.Node) error
		status string
		goOn   func(*bundle, pgexec.RunID) (string, error)
	}{
		"failed": {
			func(*pgexec.Node) error { return pgexec.Permanent(errors.New("broken")) }, "failed",
			func(b *bundle, id pgexec.RunID) (string, error) { return b.client.Retry(b.ctx, id) },
		},
		"paused": {
			func(n *pgexec.Node) error { n.Pause("enough"); return nil }, "paused",
			func(b *bundle, id pgexec.RunID) (string, error) { return b.client.Resume(b.ctx, id, nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var stopped atomic.Bool
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				n.Spawn("stop", nil, &pgexec.SpawnOpts{ID: "stop"})
				n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "child"}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{n.Spawn("later", nil, nil)}})
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "stop", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				if stopped.Swap(true) {
					return 0, nil
				}
				return 0, tc.stop(n)
			}, nil)
			pgexec.AddKind(kinds, "later", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'stop')`, n.RunID())
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "child", func(context.Context, *pgexec.Node, none) (int, error) { return 3, nil }, nil)
			b.replica(kinds)
			id := b.start("root", nil)
			b.eventually(`select status::text = $2 from pgexec.runs where run_id = $1`, id, tc.status)
			if n := query[int](b, `select count(*) from pgexec.runs where parent_run_id is not null`); n != 0 {
				t.Errorf("%d child runs of a run that is %s", n, tc.status)
			}
			if _, err := tc.goOn(b, id); err != nil {
				t.Fatal(err)
			}
			if run := b.succeed(id); string(run.Result) != "3" {
				t.Errorf("result %s", run.Result)
			}
		})
	}
}
