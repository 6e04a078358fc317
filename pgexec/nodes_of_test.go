package pgexec_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func TestNodesOf_ReadsWhatAnotherRunHasDone(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "count", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		if left > 1 {
			n.Spawn("count", left-1, nil)
		}
		return left, nil
	}, nil)
	type found struct {
		Sum     int
		Parents int
	}
	pgexec.AddKind(kinds, "sum", func(ctx context.Context, n *pgexec.Node, run pgexec.RunID) (out found, err error) {
		nodes, err := n.NodesOf(ctx, b.pool, run)
		if err != nil {
			return out, pgexec.Permanent(err)
		}
		for _, node := range nodes {
			var v int
			if err := node.Output(&v); err != nil {
				return out, err
			}
			out.Sum += v
			out.Parents += len(node.Parents())
		}
		return out, nil
	}, nil)
	b.replica(kinds)
	first := b.start("count", 4)
	b.succeed(first)
	var got found
	if err := b.succeed(b.start("sum", first)).Output(&got); err != nil || got != (found{Sum: 10, Parents: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	var failed *pgexec.RunError
	if err := b.wait(b.start("sum", pgexec.RunID{1})).Err(); !errors.As(err, &failed) {
		t.Errorf("a run that is not there: %v", err)
	}
}
