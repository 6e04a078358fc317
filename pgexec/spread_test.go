package pgexec_test

import (
	"context"
	"sync"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// Runs inserted by one statement spread over the replicas that have room.
func TestRuntime_BurstOfRunsSpreads(t *testing.T) {
	b := setup(t)
	const runs = 120
	var mu sync.Mutex
	on := map[string]int{}
	gate := make(chan struct{})
	kindsOf := func(host string) *pgexec.Kinds {
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, "hold", func(context.Context, *pgexec.Node, none) (int, error) {
			mu.Lock()
			on[host]++
			mu.Unlock()
			<-gate
			return 0, nil
		}, nil)
		return kinds
	}
	// Two would share by the luck of who fetches first; nobody may take more than it has room for.
	for _, host := range []string{"a", "b", "c"} {
		b.replica(kindsOf(host), named(host), func(c *pgexec.Config) { c.MaxHotRuns = 50 })
	}
	b.eventually(`select count(*) = 3 from pgexec.replicas`)
	if _, err := b.pool.Exec(b.ctx, `insert into pgexec.runs (kind) select 'hold' from generate_series(1, $1)`, runs); err != nil {
		t.Fatal(err)
	}
	b.eventually(`select count(*) = $1 from pgexec.runs where status = 'running'`, runs)
	mu.Lock()
	t.Logf("runs per replica: %v", on)
	if len(on) != 3 {
		t.Errorf("only %d of 3 replicas took any: %v", len(on), on)
	}
	mu.Unlock()
	close(gate)
	b.eventually(`select count(*) = $1 from pgexec.runs where status = 'succeeded'`, runs)
}
