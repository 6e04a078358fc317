package pgexec_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// G7: at a limit no further child run is started, and what the limit held starts when it is raised.
func TestLimits_HoldChildRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		column, value, reason string
		chained               bool
		runs                  int
		more                  pgexec.ResumeOpts
	}{
		"tokens, one after another": {"max_tokens", "25", "max_tokens reached: 30 of 25", true, 3, pgexec.ResumeOpts{AddTokens: 1000}},
		"nodes, one after another":  {"max_nodes", "4", "max_nodes reached: 4 of 4", true, 4, pgexec.ResumeOpts{AddNodes: 100}},
		"nodes, side by side":       {"max_nodes", "4", "max_nodes reached: 4 of 4", false, 4, pgexec.ResumeOpts{AddNodes: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "parent", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				n.AddUsage(pgexec.Usage{InputTokens: 10})
				before := n.Ref()
				for range 10 {
					child := n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "child"}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{before}})
					if tc.chained {
						before = child
					}
				}
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "child", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				n.AddUsage(pgexec.Usage{InputTokens: 10})
				return 1, nil
			}, nil)
			b.replica(kinds, briefly)
			id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, `+tc.column+`) values ('parent', `+tc.value+`) returning run_id`)
			const paused = `select status = 'paused' from pgexec.runs where run_id = $1`
			const ended = `select bool_and(status = 'succeeded') from pgexec.runs where parent_run_id = $1`
			for range 2 { // resumed without a higher limit it pauses again
				b.eventually(paused, id)
				if got := query[string](b, `select reason from pgexec.runs where run_id = $1`, id); !strings.Contains(got, tc.reason) {
					t.Errorf("reason %q, want %q", got, tc.reason)
				}
				b.eventually(ended, id)
				if n := query[int](b, `select count(*) from pgexec.runs`); n != tc.runs {
					t.Errorf("%d runs at the limit, want %d", n, tc.runs)
				}
				if answer, err := b.client.Resume(b.ctx, id, nil); err != nil || answer != "resumed" {
					t.Fatalf("resume: %q, %v", answer, err)
				}
			}
			b.eventually(paused, id)
			if _, err := b.client.Resume(b.ctx, id, &tc.more); err != nil {
				t.Fatal(err)
			}
			b.succeed(id)
			if n := query[int](b, `select count(*) from pgexec.runs`); n != 11 {
				t.Errorf("%d runs in all, want 11", n)
			}
			b.checkLog(id)
		})
	}
}
