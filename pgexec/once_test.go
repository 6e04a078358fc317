package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// once is a kind whose first attempt takes its owner's session down with it.
type once struct{ ran atomic.Int64 }

func (o *once) kinds(b *bundle, policy pgexec.UnknownOutcome) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "pay", func(ctx context.Context, n *pgexec.Node, _ none) (string, error) {
		if o.ran.Add(1) == 1 {
			if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, "victim"); err != nil {
				b.t.Error(err)
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		return fmt.Sprintf("attempt %d", n.Attempt()), nil
	}, &pgexec.KindOpts{AtMostOnce: policy})
	return kinds
}

// G6: an at-most-once node that was in flight at a crash ends as its policy
// says, and its handler is not called again unless that is what it says.
func TestAtMostOnce_OutcomeUnknownAfterACrash(t *testing.T) {
	for name, tc := range map[string]struct {
		policy pgexec.UnknownOutcome
		settle string // payload of the signal
		status pgexec.RunStatus
		words  string
		ran    int64
	}{
		"fails":                 {pgexec.UnknownFails, "", pgexec.RunFailed, "not known", 1},
		"runs again":            {pgexec.UnknownRunsAgain, "", pgexec.RunSucceeded, `"attempt 2"`, 2},
		"asks, done":            {pgexec.UnknownAsks, `{"output": {"paid": true}}`, pgexec.RunSucceeded, `{"paid": true}`, 1},
		"asks, failed":          {pgexec.UnknownAsks, `{"error": "the bank says no"}`, pgexec.RunFailed, "the bank says no", 1},
		"asks, again":           {pgexec.UnknownAsks, `{"run_again": true}`, pgexec.RunSucceeded, `"attempt 2"`, 2},
		"asks, answer is wrong": {pgexec.UnknownAsks, `{"yes": 1}`, pgexec.RunFailed, `{"run_again": true}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var o once
			b.replica(o.kinds(b, tc.policy), named("victim"), briefly)
			id := b.start("pay", nil)
			if tc.settle != "" {
				b.eventually(isParked, id)
				if got := query[string](b, `select reason from pgexec.runs where run_id = $1`, id); !strings.Contains(got, `the outcome of root is unknown`) {
					t.Errorf("reason %q", got)
				}
				query[int64](b, `select pgexec.signal($1, 'outcome', $2::jsonb, node_id => 'root')`, id, tc.settle)
			}
			run := b.wait(id)
			if run.Status != tc.status || !strings.Contains(string(run.Result)+run.Error, tc.words) {
				t.Errorf("run %s: %s%s", run.Status, run.Result, run.Error)
			}
			if n := o.ran.Load(); n != tc.ran {
				t.Errorf("the handler was called %d times, want %d", n, tc.ran)
			}
			b.checkLog(id)
		})
	}
}

// C17: an attempt that was lost with its replica is none of those that a node may fail.
func TestAtMostOnce_LostAttemptsAreNoFailures_C17(t *testing.T) {
	b := setup(t)
	var ran atomic.Int64
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "pay", func(ctx context.Context, n *pgexec.Node, _ none) (string, error) {
		switch ran.Add(1) {
		case 1, 3:
			if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, "victim"); err != nil {
				b.t.Error(err)
			}
			<-ctx.Done()
			return "", ctx.Err()
		case 2, 4:
			return "", pgexec.WithCode(errors.New("no"), "outcome_unknown") // known, whatever it calls itself
		}
		return fmt.Sprintf("attempt %d", n.Attempt()), nil
	}, &pgexec.KindOpts{AtMostOnce: pgexec.UnknownRunsAgain, Retry: pgexec.RetryPolicy{MaxAttempts: 3, MinBackoff: 1}})
	b.replica(kinds, named("victim"), briefly)
	if run := b.succeed(b.start("pay", nil)); string(run.Result) != `"attempt 5"` {
		t.Errorf("result %s", run.Result)
	}
	kinds = pgexec.NewKinds()
	var failed atomic.Int64
	pgexec.AddKind(kinds, "fail", func(context.Context, *pgexec.Node, none) (int, error) {
		failed.Add(1)
		return 0, pgexec.WithCode(errors.New("no"), "outcome_unknown")
	}, &pgexec.KindOpts{AtMostOnce: pgexec.UnknownRunsAgain, Retry: pgexec.RetryPolicy{MaxAttempts: 3, MinBackoff: 1}})
	b.replica(kinds, named("other"))
	if run := b.wait(b.start("fail", nil)); run.Status != pgexec.RunFailed || failed.Load() != 3 {
		t.Errorf("the run is %s after %d attempts, want 3", run.Status, failed.Load())
	}
}

// Without a crash an at-most-once node is one mark and one record, and an error
// of its handler is final, whatever its kind's retry policy says.
func TestAtMostOnce_WithoutACrash(t *testing.T) {
	b := setup(t)
	var ran atomic.Int64
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "pay", func(_ context.Context, n *pgexec.Node, fail bool) (int, error) {
		ran.Add(1)
		const marks = `select count(*) from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'started'`
		if got := query[int](b, marks, n.RunID()); got != 1 {
			t.Errorf("%d marks in the log when the handler is called, want 1", got)
		}
		if fail {
			return 0, fmt.Errorf("no")
		}
		return 1, nil
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 9}, AtMostOnce: pgexec.UnknownFails})
	b.replica(kinds)
	id := b.start("pay", false)
	b.succeed(id)
	if n := query[int](b, `select count(*) from pgexec.run_log where run_id = $1`, id); n != 4 {
		t.Errorf("%d records, want claim, mark, node and end", n)
	}
	if run := b.wait(b.start("pay", true)); run.Status != pgexec.RunFailed {
		t.Errorf("run %s", run.Status)
	}
	if ran.Load() != 2 {
		t.Errorf("%d calls, want 2", ran.Load())
	}
}

// G6: what settles an unknown outcome is addressed to the node and about the attempt that was lost: an answer given
// twice does not have the node run a third time.
func TestAtMostOnce_AnAnswerIsAboutOneAttempt_G6(t *testing.T) {
	b := setup(t)
	var ran atomic.Int64
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "pay", func(ctx context.Context, _ *pgexec.Node, _ none) (bool, error) {
		ran.Add(1)
		if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, "victim"); err != nil {
			b.t.Error(err)
		}
		<-ctx.Done()
		return false, ctx.Err()
	}, &pgexec.KindOpts{AtMostOnce: pgexec.UnknownAsks})
	b.replica(kinds, named("victim"), briefly)
	id := b.start("pay", nil)
	const asks = `select status = 'parked' and reason like 'the outcome of root is unknown%' from pgexec.runs where run_id = $1`
	b.eventually(asks, id)
	b.exec(`select pgexec.signal($1, 'outcome', '{"output": "to nobody"}')`, id)
	b.exec(`select pgexec.signal($1, 'outcome', '{"run_again": true}', node_id => 'root')
		union all select pgexec.signal($1, 'outcome', '{"run_again": true}', node_id => 'root')`, id)
	b.eventually(`select count(*) = 2 from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'started'`, id)
	b.eventually(asks, id)
	b.exec(`select pgexec.signal($1, 'outcome', '{"output": "paid"}', node_id => 'root')`, id)
	if run := b.succeed(id); string(run.Result) != `"paid"` {
		t.Errorf("result %s", run.Result)
	}
	if n := ran.Load(); n != 2 {
		t.Errorf("the handler was called %d times, want 2", n)
	}
	b.checkLog(id)
}
