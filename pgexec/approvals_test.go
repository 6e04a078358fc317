package pgexec_test

import (
	"context"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// An open approval is listed wherever its run is: hot with other nodes in flight, parked, without its replica, paused, and
// as a fork; and a run that asks for nothing is not looked at.
func TestApprovals_AreListedWhereverTheRunIs_C38(t *testing.T) {
	b := setup(t)
	gate := make(chan struct{})
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn(pgexec.KindApproval, map[string]any{"about": "the order", "args": map[string]int{"n": 1}}, &pgexec.SpawnOpts{ID: "ask"})
		n.Spawn("busy", nil, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "busy", func(ctx context.Context, _ *pgexec.Node, _ none) (int, error) {
		select {
		case <-gate:
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, nil)
	pgexec.AddKind(kinds, "quiet", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn(pgexec.KindSignal, map[string]string{"name": "go"}, nil)
		return 0, nil
	}, nil)
	first := b.replica(kinds)
	quiet := b.start("quiet", nil)
	id := b.start("root", nil)
	const listed = `select count(*) = 1 from pgexec.approvals where run_id = $1 and node_id = 'ask' and args = '{"n": 1}'`
	b.eventually(listed, id)
	if !query[bool](b, `select status = 'running' from pgexec.runs where run_id = $1`, id) {
		t.Error("the run is not hot")
	}
	// Its replica dies, and nobody goes on.
	b.exec(`update pgexec.runs set queue = 'nobody' where run_id = $1`, id)
	b.exec(`select pg_terminate_backend(backend_pid) from pgexec.replicas`)
	b.eventually(`select status = 'queued' from pgexec.runs where run_id = $1`, id)
	b.eventually(listed, id)
	b.exec(`update pgexec.runs set queue = 'default', wake_job = null where run_id = $1`, id)
	b.exec(`select pgexec.wake_runs(array[$1::uuid])`, id)
	b.eventually(`select status = 'running' from pgexec.runs where run_id = $1`, id)
	close(gate)
	b.eventually(`select status = 'parked' and may_ask from pgexec.runs where run_id = $1`, id)
	b.eventually(listed, id)
	b.eventually(`select status = 'parked' and not may_ask from pgexec.runs where run_id = $1`, quiet)
	if answer := query[string](b, `select pgexec.pause($1)`, id); answer != "paused" {
		t.Error(answer)
	}
	b.eventually(listed, id)
	first.drain()
	fork := query[pgexec.RunID](b, `select pgexec.fork($1)`, id)
	b.eventually(listed, fork)
	b.replica(kinds)
	query[string](b, `select pgexec.resume($1)`, id)
	query[string](b, `select pgexec.approve(run_id, node_id) from pgexec.approvals where run_id = $1`, id)
	b.succeed(id)
	b.eventually(`select not exists (select from pgexec.approvals where run_id = $1) and not (select may_ask from pgexec.runs where run_id = $1)`, id)
	b.eventually(listed, fork)
}
