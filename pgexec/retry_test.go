package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// That a run fails is the end of the child runs it waits for. When it is
// retried they go on where they were, whatever they were doing.
func TestRetry_ChildRunsThatTheFailureCancelledGoOn(t *testing.T) {
	b := setup(t)
	var broken atomic.Bool
	broken.Store(true)
	gate := make(chan struct{})
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		waits := n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "nest", Input: 2}, nil)
		runs := n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "wait for the gate"}, nil)
		fails := n.Spawn("fragile", nil, nil)
		n.Spawn("end", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{waits, runs, fails}})
		return 0, nil
	}, nil)
	// nest is a run in a run, the innermost of which waits for a signal.
	pgexec.AddKind(kinds, "nest", func(_ context.Context, n *pgexec.Node, depth int) (int, error) {
		if depth == 0 {
			n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil)
		} else {
			n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "nest", Input: depth - 1}, nil)
		}
		return depth, nil
	}, nil)
	pgexec.AddKind(kinds, "wait for the gate", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
		select {
		case <-gate:
			return 5, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}, nil)
	pgexec.AddKind(kinds, "fragile", func(_ context.Context, _ *pgexec.Node, _ none) (int, error) {
		if broken.Load() {
			b.eventually(`select count(*) = 2 from pgexec.runs
				where (depth = 3 and status = 'parked') or (kind = 'wait for the gate' and status = 'running')`)
			return 0, pgexec.Permanent(errors.New("broken"))
		}
		return 7, nil
	}, nil)
	pgexec.AddKind(kinds, "end", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		var got string
		for _, p := range n.Parents() {
			raw, err := p.RawOutput()
			if err != nil {
				return "", err
			}
			got += fmt.Sprintf("%s ", raw)
		}
		return got, nil
	}, nil)
	b.replica(kinds, briefly)
	id := b.start("root", nil)
	if run := b.wait(id); run.Status != pgexec.RunFailed {
		t.Fatalf("run %s: %s", run.Status, run.Error)
	}
	b.eventually(`select count(*) = 5 and bool_and(status in ('failed', 'cancelled')) from pgexec.runs`)
	broken.Store(false)
	if answer, err := b.client.Retry(b.ctx, id); err != nil || answer != "retrying" {
		t.Fatalf("retry: %q, %v", answer, err)
	}
	close(gate)
	innermost := query[pgexec.RunID](b, `select run_id from pgexec.runs where depth = 3`)
	if err := b.client.Signal(b.ctx, innermost, "go", 3, nil); err != nil {
		t.Fatal(err)
	}
	if got := string(b.succeed(id).Result); got != `"3 5 7 "` {
		t.Errorf("result %s", got)
	}
	if n := query[int](b, `select count(*) from pgexec.runs where status = 'succeeded'`); n != 5 {
		t.Errorf("%d runs have succeeded, want the same 5", n)
	}
}

// A retry that comes before the failure's cancel has reached a child run
// takes the cancel back.
func TestRetry_TakesBackACancelOnItsWay(t *testing.T) {
	b := setup(t)
	id := query[pgexec.RunID](b, `insert into pgexec.runs (kind) values ('root') returning run_id`)
	child := query[pgexec.RunID](b, `insert into pgexec.runs (kind, parent_run_id, parent_node_id) values ('child', $1, 'run-1') returning run_id`, id)
	for statement, run := range map[string]pgexec.RunID{
		`update pgexec.runs set status = 'failed' where run_id = $1`:                                id,
		`update pgexec.runs set status = 'running', owner = 1, wanted = 'cancel' where run_id = $1`: child,
	} {
		if _, err := b.pool.Exec(b.ctx, statement, run); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := b.client.Retry(b.ctx, id); err != nil || answer != "retrying" {
		t.Fatalf("retry: %q, %v", answer, err)
	}
	if got := query[string](b, `select concat_ws(' ', status, owner, wanted, inbox) from pgexec.runs where run_id = $1`, child); got != "running 1 1" {
		t.Errorf("the child run is %s", got)
	}
}
