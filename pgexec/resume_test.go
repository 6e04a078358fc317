package pgexec_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// dawdle lets a race between what the test does next and what a replica does
// come out either way.
func (b *bundle) dawdle(most time.Duration) {
	select {
	case <-time.After(rand.N(most)):
	case <-b.ctx.Done():
	}
}

// G4, G7: whoever is told that a limit is raised, or that a run is resumed, need
// not ask again, whatever the run was about to do at that moment.
func TestResume_NoneIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		insert string
		ask    func(b *bundle, id pgexec.RunID) error
	}{
		"of a limit": {
			`insert into pgexec.runs (kind, input, max_nodes) values ('step', '6', 3) returning run_id`,
			func(b *bundle, id pgexec.RunID) error {
				answer, err := b.client.Resume(b.ctx, id, &pgexec.ResumeOpts{AddNodes: 100})
				if err == nil && answer != "limits raised" && answer != "resumed" {
					err = fmt.Errorf("resume says %q", answer)
				}
				return err
			},
		},
		"after a pause": {
			`insert into pgexec.runs (kind, input) values ('step', '6') returning run_id`,
			func(b *bundle, id pgexec.RunID) error {
				if _, err := b.client.Pause(b.ctx, id, ""); err != nil {
					return err
				}
				b.dawdle(3 * time.Millisecond)
				_, err := b.client.Resume(b.ctx, id, nil)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "step", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
				if left > 1 {
					n.Spawn("step", left-1, nil)
				}
				return left, nil
			}, nil)
			b.replica(kinds)
			const rounds, atOnce = 420, 6
			var wg sync.WaitGroup
			for range atOnce {
				wg.Go(func() {
					for range rounds / atOnce {
						var id pgexec.RunID
						if err := b.pool.QueryRow(b.ctx, tc.insert).Scan(&id); err != nil {
							t.Error(err)
							return
						}
						b.dawdle(12 * time.Millisecond)
						if err := tc.ask(b, id); err != nil {
							t.Error(err)
							return
						}
						ctx, cancel := context.WithTimeout(b.ctx, patience)
						run, err := b.client.Wait(ctx, id)
						cancel()
						if err != nil || run.Status != pgexec.RunSucceeded {
							t.Errorf("%+v, %v", run, err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
