package pgexec_test

import (
	"context"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// steps returns kinds of a run of that many nodes, one behind the other, each of which spends 10 tokens and a thousandth of
// a dollar once it is let.
func steps(n int, let <-chan struct{}) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "step", func(ctx context.Context, node *pgexec.Node, nth int) (int, error) {
		select {
		case <-let:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		node.AddUsage(pgexec.Usage{InputTokens: 7, OutputTokens: 3, CostNanoUSD: 1_000_000, CachedTokens: 5, ReasoningTokens: 1})
		if nth < n {
			node.Spawn("step", nth+1, nil)
		}
		return nth, nil
	}, nil)
	return kinds
}

// What a run has spent is shown while it is hot, by the views and by the client, and its row is not touched for it.
func TestUsage_HotRunShowsWhatItSpends(t *testing.T) {
	b := setup(t)
	let := make(chan struct{})
	b.replica(steps(5, let))
	id := b.start("step", 1)
	b.eventually(`select status = 'running' from pgexec.runs where run_id = $1`, id)
	const version = `select xmin::text || ctid::text from pgexec.runs where run_id = $1`
	row := query[string](b, version, id)
	for range 3 {
		let <- struct{}{}
	}
	b.eventually(`select (tokens, input_tokens, output_tokens, cost_usd, nodes_done) = (30, 21, 9, 0.003, 3) from pgexec.run_overview where run_id = $1`, id)
	want := pgexec.Usage{InputTokens: 21, OutputTokens: 9, CostNanoUSD: 3_000_000}
	run, err := b.client.Get(b.ctx, id)
	if err != nil || run.Status != pgexec.RunRunning || run.Spent != want || run.NodesDone != 3 {
		t.Errorf("%s has spent %+v with %d nodes, %v; want %+v with 3", run.Status, run.Spent, run.NodesDone, err, want)
	}
	list, err := b.client.List(b.ctx, nil)
	if err != nil || len(list) != 1 || list[0].Spent != want {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if now := query[string](b, version, id); now != row {
		t.Errorf("the run's row has changed: %s, %s", row, now)
	}
	if got := query[string](b, `select concat_ws(' ', input_tokens, cached_tokens, output_tokens, reasoning_tokens) from pgexec.nodes where run_id = $1 limit 1`, id); got != "7 5 3 1" {
		t.Errorf("a node has spent %s", got)
	}
	let <- struct{}{}
	let <- struct{}{}
	if run := b.succeed(id); run.Spent.InputTokens != 35 || run.NodesDone != 5 {
		t.Errorf("in the end it has spent %+v", run.Spent)
	}
	b.eventually(`select not exists (select from pgexec.run_usage)`)
}

// A replica that dies takes nothing back, and neither does the one that goes on, a park or the end: whoever looks sees
// figures that only grow, up to the exact ones.
func TestUsage_NeverLessAfterATakeover(t *testing.T) {
	b := setup(t)
	let := make(chan struct{})
	kinds := steps(60, let)
	first := b.replica(kinds)
	id := b.start("step", 1)
	last, looks := 0, 0
	look := func() {
		t.Helper()
		looks++
		// The sum of what is in the log is never exceeded.
		now := query[int](b, `select tokens from pgexec.run_overview where run_id = $1`, id)
		if exact := query[int](b, `select coalesce(sum(tokens), 0) from pgexec.nodes where run_id = $1`, id); now < last || now > exact {
			t.Fatalf("%d tokens are shown after %d; the log has %d", now, last, exact)
		}
		last = now
	}
	for n := 1; n <= 40; n++ {
		let <- struct{}{}
		look()
		switch n {
		case 10: // the session of the owner is ended
			b.eventually(`select tokens > 0 from pgexec.run_overview where run_id = $1`, id)
			query[bool](b, `select pg_terminate_backend(backend_pid) from pgexec.replicas`)
		case 20: // a drain, and another replica goes on
			b.eventually(`select tokens >= 110 from pgexec.run_overview where run_id = $1`, id)
			b.replica(kinds)
			first.stop()
		case 30:
			b.eventually(`select epoch > 2 and status = 'running' from pgexec.runs where run_id = $1`, id)
		}
		look()
	}
	close(let) // a node that a death cut off needs to be let again
	b.succeed(id)
	look()
	if last != 600 {
		t.Errorf("in the end %d tokens are shown, want 600", last)
	}
	t.Logf("looked %d times", looks)
}

// A fork begins with what its prefix has spent; a failed attempt counts as well.
func TestUsage_OfForksAndFailedAttempts(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "flaky", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.AddUsage(pgexec.Usage{InputTokens: 100, OutputTokens: 10})
		if n.Attempt() < 3 {
			return 0, context.DeadlineExceeded
		}
		n.Spawn("signal", map[string]string{"name": "go"}, nil)
		return 0, nil
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 3, MinBackoff: 1}})
	b.replica(kinds)
	id := b.start("flaky", nil)
	const spent = `select tokens = 330 and status = 'parked' from pgexec.run_overview where run_id = $1`
	b.eventually(spent, id)
	if got := query[int](b, `select sum((pgexec.decode(record) #>> '{attempt_failed,usage,input_tokens}')::int) from pgexec.run_log where run_id = $1`, id); got != 200 {
		t.Errorf("the failed attempts' records have %d input tokens, want 200", got)
	}
	fork := query[pgexec.RunID](b, `select pgexec.fork($1)`, id)
	b.eventually(spent, fork)
}
