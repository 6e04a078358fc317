package ownership_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// hear returns the ids that a session hears of, one by one.
func (b *bundle) hear(change ...func(*ownership.SessionConfig)) <-chan runlog.RunID {
	b.t.Helper()
	heard := make(chan runlog.RunID, 5000)
	b.open(append(change, func(cfg *ownership.SessionConfig) {
		cfg.ControlFunc = func(ids []runlog.RunID) {
			for _, id := range ids {
				heard <- id
			}
		}
	})...)
	return heard
}

func (b *bundle) heardNext(heard <-chan runlog.RunID) runlog.RunID {
	b.t.Helper()
	select {
	case id := <-heard:
		return id
	case <-time.After(patience):
		b.t.Fatal("nothing was heard")
		panic("unreachable")
	}
}

// What reaches an owned run is heard at once, through any number of heartbeats; what is no run id is passed over.
func TestSession_HearsOfRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	heard := b.hear(func(cfg *ownership.SessionConfig) { cfg.Heartbeat = time.Millisecond })
	owner := b.open()
	c := b.claimer(owner)
	got := b.claim(c, b.start(), "claimed")
	var took []time.Duration
	for range 20 {
		for _, call := range []string{
			`select pgexec.signal($1, 'go')`, `select pgexec.pause($1)`, `select pgexec.resume($1)`,
		} {
			before := time.Now()
			b.exec(call, got.RunID)
			if id := b.heardNext(heard); id != got.RunID {
				t.Fatalf("%s: heard of %s", call, id)
			}
			took = append(took, time.Since(before))
		}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("heard after %v, at most %v", median, took[len(took)-1])
	if median > 250*time.Millisecond {
		t.Errorf("half of it was heard later than after %v: looking twice a second would do as well", median)
	}
	b.exec(`select pg_notify('pgexec_control', '')`)
	b.exec(`select pg_notify('pgexec_control', 'x,,' || $1 || ', ')`, got.RunID.String())
	if id := b.heardNext(heard); id != got.RunID {
		t.Errorf("heard of %s", id)
	}
	if len(heard) != 0 {
		t.Errorf("heard of %s as well", <-heard)
	}
}

// A claim tells what has reached the run, what it may spend and whose child it is; it makes a timer that
// was not due a run that is, should its owner give it back.
func TestClaim_TellsOfTheRunsLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	c := b.claimer(s)
	parent := b.claim(c, b.start(), "claimed")
	if parent.Inbox != 0 || parent.Depth != 0 || parent.ParentRunID != (runlog.RunID{}) || parent.Limits != (runlog.Limits{SoftLimit: 0.8}) {
		t.Errorf("of a plain run: %+v", parent)
	}
	id := value[runlog.RunID](b, `insert into pgexec.runs (kind, parent_run_id, parent_node_id, max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline, max_parallel, soft_limit)
		values ('k', $1, 'n', 1, 0.000000002, 3, 4, '1970-01-01 00:00:00.000005Z', 6, 0.5) returning run_id`, parent.RunID)
	b.exec(`update pgexec.runs set status = 'parked', wake_job = null, run_at = 'infinity' where run_id = $1`, id)
	b.claim(c, ownership.Want{RunID: id}, "settled")
	b.exec(`select pgexec.signal($1, 'a'), pgexec.signal($1, 'b')`, id)
	child := b.claim(c, b.wakeOf(id), "claimed")
	limits := runlog.Limits{MaxTokens: 1, MaxCostNanoUSD: 2, MaxNodes: 3, MaxWallMs: 4, DeadlineUs: 5, MaxParallel: 6, SoftLimit: 0.5}
	if child.Inbox != 2 || child.Depth != 1 || child.ParentRunID != parent.RunID || child.Limits != limits {
		t.Errorf("of the child: %+v", child)
	}
	if !value[bool](b, `select run_at <= now() from pgexec.runs where run_id = $1`, id) {
		t.Error("a released run would not be due")
	}
	owned, err := ownership.Owned(b.ctx, b.pool, s.ID())
	if err != nil || len(owned) != 2 {
		t.Fatalf("owned %v, error %v", owned, err)
	}
	for _, held := range owned {
		if want := map[runlog.RunID]int64{parent.RunID: 0, id: 2}[held.RunID]; held.Inbox != want || held.Epoch != 1 {
			t.Errorf("owned %+v, want inbox %d", held, want)
		}
	}
}
