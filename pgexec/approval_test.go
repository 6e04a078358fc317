package pgexec_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// C38: what was approved, as asked or edited, is the output; a rejection fails the node with its reason; an
// answer that is addressed to nobody or to another node is not taken.
func TestApproval_DecidesForItsOwnNode_C38(t *testing.T) {
	b := setup(t)
	b.replica(spawning(), briefly)
	for name, tc := range map[string]struct {
		input, answer string
		output, fails string
	}{
		"as asked":        {`{"about": "x", "args": {"n": 1}}`, `{"approve": true}`, `{"args": {"n": 1}}`, ""},
		"edited":          {`{"args": {"n": 1}}`, `{"approve": true, "args": {"n": 2}}`, `{"args": {"n": 2}}`, ""},
		"nothing asked":   {`{}`, `{"approve": true}`, `{"args": null}`, ""},
		"rejected":        {`{"args": {"n": 1}}`, `{"approve": false, "reason": "too much"}`, "", "rejected: too much"},
		"without words":   {`{}`, `{"approve": false}`, "", "rejected"},
		"no decision":     {`{}`, `{"ok": true}`, "", "want {"},
		"two decisions":   {`{}`, `{"approve": false, "args": {}}`, "", "want {"},
		"nobody answered": {`{"timeout": "10ms"}`, ``, "", `no signal "approval" within 10ms`},
	} {
		t.Run(name, func(t *testing.T) {
			id := b.startNode("approval", tc.input)
			if tc.answer != "" {
				b.eventually(`select status = 'parked' and reason like 'it waits for an approval%' from pgexec.runs where run_id = $1`, id)
				query[int64](b, `select pgexec.signal($1, 'approval', '{"approve": false, "reason": "to nobody"}')`, id)
				query[int64](b, `select pgexec.signal($1, 'approval', '{"approve": false, "reason": "to another"}', node_id => 'other')`, id)
				query[int64](b, `select pgexec.signal($1, 'approval', $2::text::jsonb, node_id => 'it')`, id, tc.answer)
			}
			run := b.wait(id)
			if tc.fails != "" {
				if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, tc.fails) {
					t.Errorf("%s: %s, want %q", run.Status, run.Error, tc.fails)
				}
				return
			}
			if got := query[string](b, `select output::text from pgexec.nodes where run_id = $1 and node_id = 'it'`, id); got != tc.output {
				t.Errorf("output %s, want %s", got, tc.output)
			}
		})
	}
}

// G7, C44: a node with limits of its own starts although a limit is reached, sees which, and has the run pause
// when it and what is in flight are done; raised, the run goes on with its successors. Others are held as ever.
func TestPause_AfterANodeThatSeesToTheLimitsItself_G7(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	reached := make(chan string, 10)
	pgexec.AddKind(kinds, "start", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.AddUsage(pgexec.Usage{OutputTokens: 10})
		n.Spawn("turn", nil, &pgexec.SpawnOpts{ID: "last", OwnLimits: true})
		n.Spawn("plain", nil, &pgexec.SpawnOpts{ID: "held"})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "plain", func(context.Context, *pgexec.Node, none) (int, error) { return 1, nil }, nil)
	pgexec.AddKind(kinds, "turn", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		reached <- n.Budget().LimitReached
		if n.Budget().LimitReached != "" {
			n.Pause("the end is near")
			n.Spawn("turn", nil, &pgexec.SpawnOpts{ID: "next", OwnLimits: true, After: []pgexec.NodeRef{n.Ref(), pgexec.Ref("held")}})
		}
		return 2, nil
	}, nil)
	b.replica(kinds)
	id, err := b.client.Start(b.ctx, "start", nil, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 10}})
	if err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "the last turn", reached); got != "limit max_tokens reached: 10 of 10 tokens spent" {
		t.Errorf("limit reached: %q", got)
	}
	b.eventually(`select status = 'paused' and reason = 'the end is near' from pgexec.runs where run_id = $1`, id)
	if n := query[int](b, `select count(*)::int from pgexec.nodes where run_id = $1`, id); n != 2 {
		t.Errorf("%d nodes are done, want 2: the limit holds all others", n)
	}
	query[string](b, `select pgexec.resume($1, add_tokens => 10)`, id)
	if got := receive(t, "the turn after the pause", reached); got != "" {
		t.Errorf("limit reached: %q", got)
	}
	b.succeed(id)
}

// A node's own timeout goes before its kind's.
func TestRun_TimeoutOfANode(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "start", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("slow", nil, &pgexec.SpawnOpts{Timeout: time.Millisecond, Retry: pgexec.RetryPolicy{MaxAttempts: 1}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "slow", func(ctx context.Context, _ *pgexec.Node, _ none) (int, error) {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}, &pgexec.KindOpts{Timeout: time.Hour})
	b.replica(kinds)
	if run := b.wait(b.start("start", nil)); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "time is over") {
		t.Errorf("%s: %s", run.Status, run.Error)
	}
}
