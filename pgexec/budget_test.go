package pgexec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// turns returns kinds of a chain of turns, each of which spends 10 tokens, half
// a dollar cent and whatever time it takes, and counts how often each ran.
func turns(ran *atomic.Int64, near *atomic.Int64) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "turn", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		ran.Add(1)
		if n.Budget().NearLimit {
			near.Add(1)
		}
		n.AddUsage(pgexec.Usage{InputTokens: 6, OutputTokens: 4, CostNanoUSD: 5_000_000})
		if left > 1 {
			n.Spawn("turn", left-1, nil)
		}
		return left, nil
	}, nil)
	return kinds
}

// G7, C44: a limit stops the run between nodes, saved and named; raising it
// continues at exactly that frontier.
func TestLimits_PauseBetweenNodesAndResumeThere(t *testing.T) {
	for name, tc := range map[string]struct {
		column, value, reason string
		before                int64
		more                  pgexec.ResumeOpts
	}{
		"tokens": {"max_tokens", "50", "max_tokens reached: 50 of 50", 5, pgexec.ResumeOpts{AddTokens: 1000}},
		"cost":   {"max_cost_usd", "0.025", "max_cost_usd reached: 0.025 of 0.025", 5, pgexec.ResumeOpts{AddCostUSD: 1}},
		"nodes":  {"max_nodes", "5", "max_nodes reached: 5 of 5", 5, pgexec.ResumeOpts{AddNodes: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var ran, near atomic.Int64
			b.replica(turns(&ran, &near))
			id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input, `+tc.column+`) values ('turn', '10', `+tc.value+`) returning run_id`)
			b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
			if got := query[string](b, `select reason from pgexec.runs where run_id = $1`, id); !strings.Contains(got, tc.reason) {
				t.Errorf("reason %q, want %q", got, tc.reason)
			}
			if n := ran.Load(); n != tc.before {
				t.Errorf("%d turns before the limit, want %d", n, tc.before)
			}
			if near.Load() != 1 { // the fifth turn starts with 80 % spent
				t.Errorf("%d turns saw the soft limit, want 1", near.Load())
			}
			b.replica(turns(&ran, &near)) // whichever replica goes on
			answer, err := b.client.Resume(b.ctx, id, &tc.more)
			if err != nil || answer != "resumed" {
				t.Fatalf("resume: %q, %v", answer, err)
			}
			b.succeed(id)
			if n := ran.Load(); n != 10 {
				t.Errorf("%d turns ran in all, want 10: none twice", n)
			}
			if got := query[int](b, `select input_tokens + output_tokens from pgexec.runs where run_id = $1`, id); got != 100 {
				t.Errorf("the run's row says %d tokens, want 100", got)
			}
			b.checkLog(id)
		})
	}
}

func TestLimits_DeadlineAndWallTime(t *testing.T) {
	b := setup(t)
	var ran, near atomic.Int64
	b.replica(turns(&ran, &near))
	id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input, deadline) values ('turn', '10', now() - interval '1 s') returning run_id`)
	b.eventually(`select status = 'paused' and reason like 'limit deadline reached%' from pgexec.runs where run_id = $1`, id)
	if ran.Load() != 0 {
		t.Errorf("%d turns after the deadline", ran.Load())
	}
	if answer := query[string](b, `select pgexec.resume($1, deadline => now() + interval '1 h')`, id); answer != "resumed" {
		t.Errorf("resume says %q", answer)
	}
	b.succeed(id)

	slow := pgexec.NewKinds()
	pgexec.AddKind(slow, "slow", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
		if n.Budget().Active < n.Budget().MaxActive && n.ID() == pgexec.RootID {
			_, err := b.pool.Exec(ctx, `select pg_sleep(0.06)`)
			n.Spawn("slow", nil, nil)
			return 0, err
		}
		return 1, nil
	}, nil)
	b.replica(slow)
	id = query[pgexec.RunID](b, `insert into pgexec.runs (kind, max_wall_ms) values ('slow', 50) returning run_id`)
	b.eventually(`select status = 'paused' and reason like 'limit max_wall_ms reached%' from pgexec.runs where run_id = $1`, id)
	if answer := query[string](b, `select pgexec.resume($1, add_wall_ms => 3600000)`, id); answer != "resumed" {
		t.Errorf("resume says %q", answer)
	}
	b.succeed(id)
}

// Wall time is kept in milliseconds: a part of one counts as a whole, never as no limit or as nothing added.
func TestLimits_WallTimeIsRoundedUp(t *testing.T) {
	b := setup(t)
	for wall, want := range map[time.Duration]int64{time.Nanosecond: 1, time.Millisecond: 1, 1001 * time.Microsecond: 2, time.Second: 1000} {
		id, err := b.client.Start(b.ctx, "nobody's", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxWall: wall}})
		if err != nil {
			t.Fatal(err)
		}
		if got := query[int64](b, `select coalesce(max_wall_ms, 0) from pgexec.runs where run_id = $1`, id); got != want {
			t.Errorf("%s is kept as %d ms, want %d", wall, got, want)
		}
		if _, err := b.client.Resume(b.ctx, id, &pgexec.ResumeOpts{AddWall: wall}); err != nil {
			t.Fatal(err)
		}
		if got := query[int64](b, `select coalesce(max_wall_ms, 0) from pgexec.runs where run_id = $1`, id); got != 2*want {
			t.Errorf("%s added makes %d ms, want %d", wall, got, 2*want)
		}
	}
	if _, err := b.client.Start(b.ctx, "nobody's", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxWall: -time.Nanosecond}}); err == nil {
		t.Error("a negative limit is none")
	}
}

// Times that only Postgres can name neither keep a run from being claimed nor others from being listed.
func TestRun_TimesBeyondAllCalendars(t *testing.T) {
	b := setup(t)
	var ran, near atomic.Int64
	b.replica(turns(&ran, &near))
	client := pgexec.NewClient(b.pool, nil)
	for _, times := range []string{
		"null, '-infinity'",
		"null, '4713-01-01 BC'",
		"'294276-01-01', now()",
	} {
		id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input, deadline, run_at) values ('turn', '1', `+times+`) returning run_id`)
		b.succeed(id)
		if _, err := client.Get(b.ctx, id); err != nil {
			t.Errorf("deadline, run_at = %s: %v", times, err)
		}
	}
	query[pgexec.RunID](b, `insert into pgexec.runs (kind, run_at) values ('turn', '294276-01-01') returning run_id`)
	runs, err := client.List(b.ctx, nil)
	if err != nil || len(runs) != 4 {
		t.Fatalf("%d runs are listed: %v", len(runs), err)
	}
	for _, run := range runs {
		if _, err := json.Marshal([]time.Time{run.RunAt, run.Limits.Deadline}); err != nil {
			t.Error(err)
		}
	}
}

// G7, C44: what a node with limits of its own waits for does not keep it from starting: at a limit what has not begun is
// ended. What programs outside do is in flight, also for a replica that takes the run over when the limit is reached.
func TestLimits_WhatHoldsUpALastNodeIsEndedButForTasksInFlight_G7(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	seen := make(chan string, 1)
	pgexec.AddKind(kinds, "start", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		spending := n.Spawn("spend", nil, &pgexec.SpawnOpts{ID: "spending"})
		n.Spawn("last", nil, &pgexec.SpawnOpts{OwnLimits: true, Join: pgexec.AllDone, After: []pgexec.NodeRef{
			n.Spawn("outside", nil, &pgexec.SpawnOpts{ID: "task"}),
			n.Spawn("spend", nil, &pgexec.SpawnOpts{ID: "more", After: []pgexec.NodeRef{spending}}),
		}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "spend", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.AddUsage(pgexec.Usage{OutputTokens: 10})
		return 1, nil
	}, nil)
	pgexec.AddKind(kinds, "last", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		var words []string
		for _, p := range n.Parents() {
			raw, _ := p.RawOutput()
			words = append(words, fmt.Sprintf("%s %s %v", p.ID(), raw, p.Err()))
		}
		seen <- strings.Join(words, ", ")
		n.Pause(n.Budget().LimitReached)
		return 2, nil
	}, nil)
	b.declare("outside")
	first := b.replica(kinds, briefly)
	id, err := b.client.Start(b.ctx, "start", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 10}})
	if err != nil {
		t.Fatal(err)
	}
	job := b.take("outside", "w", time.Hour)
	b.eventually(`select status = 'parked' and nodes_done = 3 from pgexec.runs where run_id = $1`, id)
	first.drain()
	b.replica(kinds, briefly)
	b.complete(job.ID, "w", `"by hand"`)
	const want = `task "by hand" <nil>, more  not run to its end: limit max_tokens reached: 10 of 10 tokens spent`
	if got := receive(t, "the last node", seen); got != want {
		t.Errorf("the last node sees\n%s, want\n%s", got, want)
	}
	b.succeed(id)
	b.checkLog(id)
}

// G7: a node in line for a limit of the fleet does not hold the last one up either, and leaves the line.
func TestLimits_ANodeInLineDoesNotHoldUpTheLastOne_G7(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	begun, free, seen := make(chan bool, 9), make(chan struct{}), make(chan string, 1)
	pgexec.AddKind(kinds, "scarce", func(context.Context, *pgexec.Node, none) (int, error) {
		begun <- true
		<-free
		return 1, nil
	}, &pgexec.KindOpts{FleetLimit: &pgexec.FleetLimit{MaxInFlight: 1}})
	pgexec.AddKind(kinds, "start", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		signal := n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil)
		n.Spawn("last", nil, &pgexec.SpawnOpts{OwnLimits: true, Join: pgexec.AllDone, After: []pgexec.NodeRef{
			n.Spawn("scarce", nil, &pgexec.SpawnOpts{ID: "in line"}),
			n.Spawn("spend", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{signal}}),
		}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "spend", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.AddUsage(pgexec.Usage{OutputTokens: 10})
		return 1, nil
	}, nil)
	pgexec.AddKind(kinds, "last", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		seen <- fmt.Sprint(n.Parents()[0].Err())
		return 2, nil
	}, nil)
	b.replica(kinds, briefly)
	first := b.start("scarce", nil)
	receive(t, "the holder of the slot", begun)
	id, err := b.client.Start(b.ctx, "start", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 10}})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually(`select status = 'parked' and reason like '%in line waits for a slot of kind scarce%' from pgexec.runs where run_id = $1`, id)
	if err := b.client.Signal(b.ctx, id, "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "the last node", seen); got != "not run to its end: limit max_tokens reached: 10 of 10 tokens spent" {
		t.Errorf("the last node sees %q", got)
	}
	b.succeed(id)
	close(free)
	b.succeed(first)
	b.succeed(b.start("scarce", nil)) // the place in line went with the node
}
