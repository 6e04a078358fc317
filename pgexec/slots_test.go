package pgexec_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// crowd returns kinds of a run whose root spawns one node of kind first and many of kind leg, of which one runs at a time
// on a replica, and of another run, "holder", that has its turn until the gate opens.
func crowd(first pgexec.Handler[none, int], legs *atomic.Int64, holds chan<- none, gate <-chan none) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "crowd", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		for range 20 {
			n.Spawn("leg", false, nil)
		}
		n.Spawn("first", nil, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "first", first, nil)
	pgexec.AddKind(kinds, "holder", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("leg", true, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "leg", func(_ context.Context, n *pgexec.Node, hold bool) (int, error) {
		if hold {
			holds <- nil
			<-gate
			return 0, nil
		}
		legs.Add(1)
		return 0, nil
	}, &pgexec.KindOpts{MaxParallel: 1})
	return kinds
}

// G7: a node that waits for its turn on the replica has not begun. A pause, by whomever, and a limit that is reached
// meanwhile keep it from starting, and do not wait for its turn.
func TestPause_NodesThatWaitForSlotsDoNotStart_G7(t *testing.T) {
	for name, tc := range map[string]struct {
		first  func(b *bundle, n *pgexec.Node)
		reason string
		more   *pgexec.ResumeOpts
	}{
		"by a person": {func(b *bundle, n *pgexec.Node) {
			if _, err := b.client.Pause(b.ctx, n.RunID(), "lunch"); err != nil {
				b.t.Error(err)
			}
		}, "paused: lunch", nil},
		"by a node": {func(_ *bundle, n *pgexec.Node) { n.Pause("enough") }, "enough", nil},
		"by a limit": {func(_ *bundle, n *pgexec.Node) {
			n.AddUsage(pgexec.Usage{InputTokens: 10})
		}, "limit max_tokens reached: 10 of 10 tokens spent", &pgexec.ResumeOpts{AddTokens: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var legs atomic.Int64
			holds, gate := make(chan none), make(chan none)
			b.replica(crowd(func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				tc.first(b, n)
				return 0, nil
			}, &legs, holds, gate))
			holder := b.start("holder", nil)
			receive(t, "leg that holds the slot", holds)
			id, err := b.client.Start(b.ctx, "crowd", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 10}})
			if err != nil {
				t.Fatal(err)
			}
			b.eventually(`select status = 'paused' and reason = $2 from pgexec.runs where run_id = $1`, id, tc.reason)
			if n := legs.Load(); n != 0 {
				t.Errorf("%d nodes have started", n)
			}
			close(gate)
			b.succeed(holder)
			if answer, err := b.client.Resume(b.ctx, id, tc.more); err != nil || answer != "resumed" {
				t.Fatalf("resume: %q, %v", answer, err)
			}
			b.succeed(id)
			if n := legs.Load(); n != 20 {
				t.Errorf("%d nodes have run, want each once", n)
			}
			b.checkLog(id)
		})
	}
}

// G7: nodes that run one after the other, for whatever reason, run no longer than the limit lets them.
func TestLimits_NodesInLineAreCountedOneByOne_G7(t *testing.T) {
	for name, tc := range map[string]struct {
		opts *pgexec.KindOpts
		mod  func(*pgexec.Config)
	}{
		"kind":    {&pgexec.KindOpts{MaxParallel: 1}, func(*pgexec.Config) {}},
		"replica": {nil, func(c *pgexec.Config) { c.MaxParallel = 1 }},
		"run":     {nil, func(c *pgexec.Config) { c.MaxParallelPerRun = 1 }},
		"fleet":   {&pgexec.KindOpts{FleetLimit: &pgexec.FleetLimit{MaxInFlight: 1}}, func(*pgexec.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var ran atomic.Int64
			b.replica(fan(20, func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				ran.Add(1)
				n.AddUsage(pgexec.Usage{OutputTokens: 10})
				return 0, nil
			}, tc.opts), tc.mod)
			id, err := b.client.Start(b.ctx, "fan", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 25}})
			if err != nil {
				t.Fatal(err)
			}
			b.eventually(`select status = 'paused' and reason like 'limit max_tokens%' from pgexec.runs where run_id = $1`, id)
			if n := ran.Load(); n != 3 {
				t.Errorf("%d nodes have run, want 3", n)
			}
		})
	}
}
