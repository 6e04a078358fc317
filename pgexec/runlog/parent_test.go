package runlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// childOf starts a child run of parent.
func (b *bundle) childOf(parent runlog.RunID) runlog.RunID {
	b.Helper()
	return value[runlog.RunID](b, `insert into pgexec.runs (kind, parent_run_id, parent_node_id) values ('c', $1, 'n') returning run_id`, parent)
}

// parentIn makes a run whose row is changed as given.
func (b *bundle) parentIn(change string) runlog.RunID {
	b.Helper()
	id := b.newRun()
	b.exec(`delete from pgexec.river_job`)
	b.exec(`update pgexec.runs set wake_job = null where run_id = $1`, id)
	b.exec(`update pgexec.runs set `+change+` where run_id = $1`, id)
	return id
}

// heard are the notifications that a connection of its own receives until stop.
type heard struct {
	b    *bundle
	conn *pgx.Conn
}

func (b *bundle) listen(channels ...string) *heard {
	b.Helper()
	conn, err := pgx.ConnectConfig(b.ctx, b.pool.Config().ConnConfig)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.ctx)) })
	for _, channel := range channels {
		if _, err := conn.Exec(b.ctx, `listen `+pgx.Identifier{channel}.Sanitize()); err != nil {
			b.Fatal(err)
		}
	}
	return &heard{b, conn}
}

// until returns what was notified before the given call's own notification.
func (h *heard) until(f func()) []string {
	h.b.Helper()
	f()
	h.b.exec(`select pg_notify('pgexec_control', 'end')`)
	var got []string
	for {
		n, err := h.conn.WaitForNotification(h.b.ctx)
		if err != nil {
			h.b.Fatal(err)
		}
		if n.Payload == "end" {
			return got
		}
		got = append(got, n.Channel+" "+n.Payload)
	}
}

// G4: the end of a child changes its parent's row in the same commit, whatever the parent does, and wakes it
// or tells its owner.
func TestFinish_ReachesTheParent_G4(t *testing.T) {
	for _, tc := range []struct {
		change, after, told string
	}{
		{"status = 'parked', queue = 'slow', priority = 3", "parked inbox 1 wake slow 3", `pgexec.river_insert {"queue" : "slow"}`},
		{"status = 'parked', wake_job = -1", "parked inbox 1", ""}, // has its wake already
		{"status = 'running', owner = 7", "running inbox 1", "pgexec_control PARENT"},
		{"status = 'paused'", "paused inbox 1", ""},
		{"status = 'queued', waiting_kinds = '{x}'", "queued inbox 1", ""},
		{"status = 'failed'", "failed inbox 1", ""},
	} {
		t.Run(tc.change, func(t *testing.T) {
			b := setup(t)
			w := runlog.NewWriter(runlog.WriterConfig{Pool: b.pool})
			parent := b.parentIn(tc.change)
			child := b.childOf(parent)
			tail := b.open(w, child, 1)
			told := b.listen("pgexec_control", "pgexec.river_insert").until(func() {
				if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
					t.Fatal(err)
				}
				w.Close() // what is to be told is told before
			})
			want := []string{}
			if tc.told != "" {
				want = append(want, strings.Replace(tc.told, "PARENT", parent.String(), 1))
			}
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
			after := value[string](b, `select concat_ws(' ', r.status, 'inbox', r.inbox, case when j.id is not null then 'wake ' || j.queue || ' ' || j.priority end)
				from pgexec.runs r left join pgexec.river_job j on j.id = r.wake_job and j.args ->> 'run_id' = r.run_id::text and j.state = 'available'
				where r.run_id = $1`, parent)
			if after != tc.after {
				t.Errorf("parent is %s, want %s", after, tc.after)
			}
		})
	}
}

// Only an end reaches the parent: a child that pauses has not ended, and one that was fenced has changed nothing.
func TestFinish_OnlyAnEndReachesTheParent(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	parent := b.parentIn("status = 'parked'")
	paused, fenced, orphan := b.childOf(parent), b.childOf(parent), b.childOf(parent)
	p := succeeded(t)
	p.Status = "paused"
	if err := b.open(w, paused, 1).Finish(b.ctx, p); err != nil {
		t.Error(err)
	}
	tail := b.open(w, fenced, 1)
	b.claim(b.pool, fenced, 2)
	if err := tail.Finish(b.ctx, succeeded(t)); !isFenced(err) {
		t.Errorf("got %v", err)
	}
	if inbox := value[int](b, `select inbox from pgexec.runs where run_id = $1`, parent); inbox != 0 {
		t.Errorf("the parent's inbox is %d", inbox)
	}
	b.exec(`delete from pgexec.runs where run_id = $1`, parent)
	if err := b.open(w, orphan, 1).Finish(b.ctx, succeeded(t)); err != nil {
		t.Errorf("of a child whose parent is gone: %v", err)
	}
}

// Children of several parents, and a parent itself, end in one statement: each parent is told of all, and woken once.
func TestFinish_FamilyInOneBatch(t *testing.T) {
	b := setup(t)
	parents := []runlog.RunID{b.parentIn("status = 'parked'"), b.parentIn("status = 'parked'"), b.newRun()}
	w, gate := b.gatedWriter(nil)
	own := b.open(w, parents[2], 1)
	var wg sync.WaitGroup
	finish := func(tail *runlog.Tail) {
		wg.Go(func() {
			if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 9 {
		finish(b.open(w, b.childOf(parents[i%3]), 1))
	}
	finish(own)
	gate()
	wg.Wait()
	for _, parent := range parents[:2] {
		got := value[string](b, `select concat_ws(' ', status, inbox, (select count(*) from pgexec.river_job j where j.id = r.wake_job),
			(select count(*) from pgexec.river_job j where j.args ->> 'run_id' = r.run_id::text)) from pgexec.runs r where run_id = $1`, parent)
		if got != "parked 3 1 1" {
			t.Errorf("parent, inbox, wakes: %s", got)
		}
	}
	b.wantEnded(parents[2])
}

// While another session holds a run's row, or its parent's, that run's end is tried again and again; all
// other runs append and end as ever, with a single flusher.
func TestFinish_WaitsForNoLock(t *testing.T) {
	for name, of := range map[string]string{"own": "run_id", "parent's": "parent_run_id"} {
		t.Run(name+" row is locked", func(t *testing.T) {
			b := setup(t)
			w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Flushers = 1 })
			parent := b.parentIn("status = 'parked'")
			child := b.childOf(parent)
			tail := b.open(w, child, 1)
			tx := b.begin()
			if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = (select `+of+` from pgexec.runs where run_id = $1) for update`, child); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
			defer cancel()
			if err := tail.Finish(short, succeeded(t)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			finished := make(chan error, 1)
			go func() { finished <- tail.Finish(b.ctx, succeeded(t)) }()
			var took []time.Duration
			for i := range 100 {
				id := b.newRun()
				other := b.open(w, id, 1)
				before := time.Now()
				b.appendAll(other, node(t, "a", 1)).wantSeqs(2)
				if err := other.Finish(b.ctx, succeeded(t)); err != nil {
					t.Fatalf("run %d: %v", i, err)
				}
				took = append(took, time.Since(before))
				b.wantEnded(id)
			}
			slices.Sort(took)
			t.Logf("the slowest of 100 other runs took %v", took[99])
			if took[50] > time.Second {
				t.Errorf("half of the other runs took longer than %v", took[50])
			}
			select {
			case err := <-finished:
				t.Fatalf("ended while its row is locked: %v", err)
			default:
			}
			b.commit(tx)
			if err := await(b, finished, "finish"); err != nil {
				t.Error(err)
			}
			b.wantEnded(child)
			b.wantLog(child, claimRecord(t, 1, 1), finishedRecord(t, 2))
		})
	}
}

// A busy run is not done for: it may append, and be ended otherwise.
func TestFinish_BusyRunGoesOn(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	tx := b.begin()
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(b.ctx, 30*time.Millisecond)
	defer cancel()
	if err := tail.Finish(short, succeeded(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	b.commit(tx)
	if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
		t.Error(err)
	}
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), finishedRecord(t, 2))
}

// A signal and the end of its run, at the same time: either the signal is refused because the run has ended, or
// it was there before and is to be seen. Neither gets any other error.
func TestFinish_RacesSignal_C11(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	const rounds = 2000
	tails := make([]*runlog.Tail, rounds)
	ids := make([]runlog.RunID, rounds)
	for i := range ids {
		ids[i] = b.newRun()
		tails[i] = b.open(w, ids[i], 1)
	}
	var wg sync.WaitGroup
	var turn, sent, refused atomic.Int64
	for range 4 {
		wg.Go(func() {
			for i := turn.Add(1) - 1; i < rounds; i = turn.Add(1) - 1 {
				finished := make(chan error, 1)
				go func() { finished <- tails[i].Finish(b.ctx, succeeded(t)) }()
				_, err := b.pool.Exec(b.ctx, `select pgexec.signal($1, 'go')`, ids[i])
				var no *pgconn.PgError
				switch {
				case err == nil:
					sent.Add(1)
				case errors.As(err, &no) && no.Message == fmt.Sprintf("run %s has already succeeded: a signal can reach it no more", ids[i]):
					refused.Add(1)
				default:
					t.Errorf("signal: %v", err)
				}
				if err := <-finished; err != nil {
					t.Errorf("finish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d signals came before the end, %d after", sent.Load(), refused.Load())
	if sent.Load() == 0 || refused.Load() == 0 {
		t.Error("it was no race")
	}
	if n := value[int64](b, `select count(*) from pgexec.signals where consumed_at is null`); n != sent.Load() {
		t.Errorf("%d signals are there", n)
	}
	if n := value[int](b, `select count(*) from pgexec.runs where status <> 'succeeded' or wake_job is not null`); n != 0 {
		t.Errorf("%d runs have not ended", n)
	}
}

// What somebody wants of a run is not undone by a pause that does not know it: a run that is to be cancelled does not
// pause, and a pause that rests on an older inbox changes nothing. All that a run has spent is shown.
func TestFinish_PauseKnowsWhatIsWanted(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	params := runlog.FinishParams{
		Record: finishedRecord(t, 0), Status: "paused", Reason: "lunch", Inbox: new(int64),
		InputTokens: 1, OutputTokens: 2, CostNanoUSD: 3, Nodes: 4,
	}
	b.exec(`select pgexec.resume($1), pgexec.pause($1, 'lunch')`, id)
	if err := tail.Finish(b.ctx, params); !errors.Is(err, runlog.ErrChanged) {
		t.Errorf("with an older inbox: %v", err)
	}
	*params.Inbox = 1
	b.exec(`update pgexec.runs set wanted = 'cancel' where run_id = $1`, id)
	if err := tail.Finish(b.ctx, params); !errors.Is(err, runlog.ErrChanged) {
		t.Errorf("while the end is wanted: %v", err)
	}
	b.wantRunning(id, 1)
	b.exec(`update pgexec.runs set wanted = 'pause' where run_id = $1`, id)
	if err := tail.Finish(b.ctx, params); err != nil {
		t.Fatal(err)
	}
	got := value[string](b, `select concat_ws(' ', status, wanted is null, reason, input_tokens, output_tokens, cost_usd, nodes_done, finished_at is null, owner is null)
		from pgexec.runs where run_id = $1`, id)
	if got != "paused t lunch 1 2 0.000000003 4 t t" {
		t.Errorf("run is %s", got)
	}
	if got := value[string](b, `select concat_ws(' ', waits_for, tokens, cost_usd, nodes_done) from pgexec.run_overview where run_id = $1`, id); got != "lunch 3 0.000000003 4" {
		t.Errorf("shown as %s", got)
	}
}

// Ends find rows by key, under the plan that is kept from when the tables were small.
func TestFinish_NoSequentialScan(t *testing.T) {
	b := setup(t)
	conn, err := pgx.ConnectConfig(b.ctx, b.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(b.ctx)
	b.exec(`vacuum analyze pgexec.runs`)
	b.exec(`vacuum analyze pgexec.run_log`)
	parent := b.newRun()
	const end = `execute s('{%s}', '{1}', '{1}', '{1}', '{end}', '{succeeded}', '{null}', '{0}', '{null}', '{null}', '{null}', '{0}', '{0}', '{0}', '{0}', '{0}', '{f}')`
	for i, step := range []string{`begin`, sql.PlanByKey, `prepare s as ` + sql.RunlogFinish, "", `commit`, "", `begin`, sql.PlanByKey, ""} {
		if step == "" {
			id := b.childOf(parent)
			b.claim(b.pool, id, 1)
			step = fmt.Sprintf(end, id)
			if i == 5 { // the plan is made: the tables grow
				b.ownedRuns(2000)
				continue
			}
		}
		if _, err := conn.Exec(b.ctx, step, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	var sequentially, rows int64
	if err := conn.QueryRow(b.ctx, `select sum(seq_scan), sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables
		where schemaname = 'pgexec' and (relname = 'runs' or relname like 'run\_log%')`).Scan(&sequentially, &rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows read", rows)
	if sequentially > 0 || rows > 40 {
		t.Errorf("%d sequential scans, %d rows read", sequentially, rows)
	}
	if inbox := value[int](b, `select inbox from pgexec.runs where run_id = $1`, parent); inbox != 1 {
		t.Errorf("the first end did not reach the parent")
	}
}
