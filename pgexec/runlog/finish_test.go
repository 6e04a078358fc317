package runlog_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func finishedRecord(t testing.TB, resultSeq runlog.Seq) []byte {
	return encode(t, &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{
		Status: pb.RunStatus_RUN_STATUS_SUCCEEDED, ResultSeq: int64(resultSeq),
	}}})
}

// succeeded ends a run with a result.
func succeeded(t testing.TB) runlog.FinishParams {
	return runlog.FinishParams{Record: finishedRecord(t, 2), Status: "succeeded", Result: []byte(`{"n": 1}`), ResultSeq: 2}
}

// runRow is what psql shows of a run.
type runRow struct {
	Status    string
	Owner     *int32
	Ended     bool
	Result    *string
	ResultSeq *int64
	Error     *string
}

func (b *bundle) row(id runlog.RunID) runRow {
	b.Helper()
	rows, err := b.pool.Query(b.ctx, `select status, owner, finished_at is not null, result::text, result_seq, error
		from pgexec.runs where run_id = $1`, id)
	if err != nil {
		b.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[runRow])
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// wantEnded checks that a run ended as succeeded says.
func (b *bundle) wantEnded(id runlog.RunID) {
	b.Helper()
	r := b.row(id)
	if r.Status != "succeeded" || r.Owner != nil || !r.Ended || r.Error != nil ||
		r.Result == nil || *r.Result != `{"n": 1}` || r.ResultSeq == nil || *r.ResultSeq != 2 {
		b.Errorf("run %s is %+v", id, r)
	}
}

// wantRunning checks that a finish has changed nothing.
func (b *bundle) wantRunning(id runlog.RunID, owner int32) {
	b.Helper()
	if r := b.row(id); r.Status != "running" || r.Owner == nil || *r.Owner != owner || r.Ended || r.Result != nil {
		b.Errorf("run %s is %+v", id, r)
	}
}

// G1: the finished record and the run's row change together, behind all that was appended before.
func TestFinish_RecordAndRowTogether_G1(t *testing.T) {
	b := setup(t)
	heads := make(chan runlog.Seq, 10)
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.CommittedFunc = func(_ runlog.RunID, head runlog.Seq) { heads <- head }
	})
	id := b.newRun()
	tail := b.open(w, id, 1)
	a := b.appendAll(tail, node(t, "a", 1), node(t, "b", 1))
	if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
		t.Fatal(err)
	}
	a.wantSeqs(2)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1), finishedRecord(t, 2))
	b.wantEnded(id)
	for head := runlog.Seq(0); head != 4; {
		head = await(b, heads, "head of the finished record")
	}
	b.appendAll(tail, node(t, "late", 1)).wantError(isFenced)
}

// C29: what jsonb and text cannot hold is shown with a replacement, and the run ends all the same.
func TestFinish_ShowsWhatTextCannotHold_C29(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	for _, p := range []runlog.FinishParams{
		{Record: finishedRecord(t, 0), Status: "succeeded", Result: []byte(`{"a": "\u0000", "b": "\ud800"}`)},
		{Record: finishedRecord(t, 0), Status: "succeeded", Result: []byte("no JSON: \x00\xff")},
		{Record: finishedRecord(t, 0), Status: "failed", Error: "bytes: \x00\xff\xed\xa0\x80"},
		{Record: finishedRecord(t, 0), Status: "cancelled"},
	} {
		id := b.newRun()
		if p.Status == "cancelled" {
			b.exec(`update pgexec.runs set wanted = 'cancel' where run_id = $1`, id)
		}
		if err := b.open(w, id, 1).Finish(b.ctx, p); err != nil {
			t.Errorf("%s with result %q, error %q: %v", p.Status, p.Result, p.Error, err)
			continue
		}
		r := b.row(id)
		if r.Status != p.Status || (r.Result != nil) != (p.Result != nil) || (r.Error != nil) != (p.Error != "") || r.ResultSeq != nil {
			t.Errorf("%s with result %q, error %q is shown as %+v", p.Status, p.Result, p.Error, r)
		}
	}
}

// G1: the answer to a finish is lost, or its request. The run ends once.
func TestFinish_OnceWhenTheLineIsCut_G1(t *testing.T) {
	for name, lose := range map[string]func(*line){
		"answer":  func(l *line) { l.answers.Store(1) },
		"request": func(l *line) { l.requests.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			var l line
			w := b.writer(func(cfg *runlog.WriterConfig) {
				cfg.Flushers = 1
				cfg.Pool = l.pool(b, func(cfg *pgxpool.Config) { cfg.MaxConns = 2 })
			})
			first, id := b.newRun(), b.newRun()
			if err := b.open(w, first, 1).Finish(b.ctx, succeeded(t)); err != nil {
				t.Fatal(err)
			}
			tail := b.open(w, id, 1)
			lose(&l)
			if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
				t.Fatal(err)
			}
			b.wantLog(id, claimRecord(t, 1, 1), finishedRecord(t, 2))
			b.wantEnded(id)
			if l.answers.Load() > 0 || l.requests.Load() > 0 {
				t.Error("the line was not cut")
			}
		})
	}
}

// A signal whose transaction is open holds the run's row. The finish comes through afterwards, the signal stays; a
// finish that rests on the inbox it has seen is refused instead, and the run is still ours.
func TestFinish_SignalMeanwhile(t *testing.T) {
	for name, inbox := range map[string]*int64{"blind": nil, "seen": new(int64)} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			id := b.newRun()
			tail := b.open(w, id, 1)
			tx := b.begin()
			if _, err := tx.Exec(b.ctx, `insert into pgexec.signals (run_id, name) values ($1, 'hello')`, id); err != nil {
				t.Fatal(err)
			}
			finished := make(chan error, 1)
			params := succeeded(t)
			params.Inbox = inbox
			go func() { finished <- tail.Finish(b.ctx, params) }()
			b.commit(tx)
			err := await(b, finished, "finish")
			if inbox == nil {
				if err != nil {
					t.Fatal(err)
				}
				b.wantEnded(id)
				return
			}
			if !errors.Is(err, runlog.ErrChanged) {
				t.Fatalf("got %v", err)
			}
			b.wantRunning(id, 1)
			b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
			params.Inbox = new(value[int64](b, `select inbox from pgexec.runs where run_id = $1`, id))
			if err := tail.Finish(b.ctx, params); err != nil {
				t.Error(err)
			}
			b.wantEnded(id)
			b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), finishedRecord(t, 2))
		})
	}
}

// Many runs end at once while signals for all of them come in: no deadlock, and every run ends.
func TestFinish_ManyAtOnceWithSignals(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	const n = 60
	ids := make([]runlog.RunID, n)
	tails := make([]*runlog.Tail, n)
	for i := range ids {
		ids[i] = b.newRun()
		tails[i] = b.open(w, ids[i], 1)
	}
	ctx, stop := context.WithCancel(b.ctx)
	var signals, finishes sync.WaitGroup
	for range 2 {
		signals.Go(func() {
			for ctx.Err() == nil {
				// A run that has ended takes no signal, and then the statement fails as a whole.
				_, _ = b.pool.Exec(ctx, `insert into pgexec.signals (run_id, name)
					select run_id, 's' from pgexec.runs where status = 'running' order by random() limit 10`)
			}
		})
	}
	for i, tail := range tails {
		finishes.Go(func() {
			a := b.appendAll(tail, node(t, "a", 1))
			if err := tail.Finish(b.ctx, succeeded(t)); err != nil {
				t.Errorf("run %s: %v", ids[i], err)
			}
			a.wantSeqs(2)
		})
	}
	finishes.Wait()
	stop()
	signals.Wait()
	for _, id := range ids {
		b.wantEnded(id)
		b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), finishedRecord(t, 2))
	}
}

// One run that is fenced, or that the database does not take, leaves the others of its batch alone.
func TestFinish_OneBadRunLeavesTheOthers(t *testing.T) {
	b := setup(t)
	b.exec(`alter table pgexec.runs add constraint no_poison check (error <> 'poison')`)
	w, gate := b.gatedWriter(nil)
	var wg sync.WaitGroup
	var good []runlog.RunID
	for i := range 30 {
		id := b.newRun()
		tail := b.open(w, id, 1)
		params, check := succeeded(t), func(err error) bool { return err == nil }
		switch i % 10 {
		case 3:
			b.claim(b.pool, id, 2)
			check = isFenced
		case 7:
			params.Error = "poison"
			check = func(err error) bool { return err != nil && !isFenced(err) }
		default:
			good = append(good, id)
		}
		wg.Go(func() {
			if err := tail.Finish(b.ctx, params); !check(err) {
				t.Errorf("run %d: got %v", i, err)
			}
		})
	}
	gate()
	wg.Wait()
	for _, id := range good {
		b.wantEnded(id)
	}
}

// The caller's context ends the wait, not the finish.
func TestFinish_CallerGivesUp(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	ctx, cancel := context.WithCancelCause(b.ctx)
	enough := errors.New("enough")
	cancel(enough)
	if err := tail.Finish(ctx, succeeded(t)); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	gate()
	w.Close()
	b.wantEnded(id)
}
