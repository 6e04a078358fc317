package runlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func isFenced(err error) bool { return errors.Is(err, runlog.ErrFenced) }

// way is one of the statements by which records get into a log.
type way struct {
	name string
	// send sends the records of a run and returns them, and what waits for their fate.
	send func(b *bundle, tail *runlog.Tail) (records [][]byte, fate func() error)
	// met waits until the statement has met what the open transaction holds.
	met func(b *bundle, l *line, tx pgx.Tx)
}

func ways(t *testing.T) []way {
	appends := func(n int) func(*bundle, *runlog.Tail) ([][]byte, func() error) {
		return func(b *bundle, tail *runlog.Tail) (records [][]byte, fate func() error) {
			for i := range n {
				records = append(records, node(t, fmt.Sprint("late-", i), 1))
			}
			return records, b.appendAll(tail, records...).fate
		}
	}
	finish := func(params runlog.FinishParams) func(*bundle, *runlog.Tail) ([][]byte, func() error) {
		return func(b *bundle, tail *runlog.Tail) ([][]byte, func() error) {
			done := make(chan error, 1)
			go func() { done <- tail.Finish(b.ctx, params) }()
			return [][]byte{params.Record}, func() error { return await(b, done, "finish") }
		}
	}
	inTx := func(level string) func(*bundle, *runlog.Tail) ([][]byte, func() error) {
		return func(b *bundle, tail *runlog.Tail) ([][]byte, func() error) {
			record := node(t, "tx", 1)
			return [][]byte{record}, b.appendTx(tail, b.effectAt(level, anEffect), record).fate
		}
	}
	waits := func(b *bundle, _ *line, tx pgx.Tx) { b.blockedOn(tx, 1) }
	// It waits for no lock: when it is sent again, it has met one.
	again := func(b *bundle, l *line, _ pgx.Tx) {
		before := l.requests.Load()
		b.until(func() bool { return before-l.requests.Load() >= 2 })
	}
	pause := encode(t, &pb.Record{Body: &pb.Record_Control{Control: &pb.Control{Kind: pb.ControlKind_CONTROL_KIND_PAUSED}}})
	return []way{
		{"one record", appends(1), waits},
		{"several records", appends(3), waits},
		{"in a handler's transaction", inTx("read committed"), waits},
		{"in a repeatable read one", inTx("repeatable read"), waits},
		{"in a serializable one", inTx("serializable"), waits},
		{"the end", finish(succeeded(t)), again},
		{"a pause", finish(runlog.FinishParams{Record: pause, Status: "paused"}), again},
	}
}

// fate is the error that all records share, nil if all are in the log.
func (a *appending) fate() error {
	a.b.Helper()
	outcomes := a.wait()
	for i, o := range outcomes {
		if (o.err == nil) != (outcomes[0].err == nil) {
			a.b.Errorf("record %d has error %v, the first %v", i, o.err, outcomes[0].err)
		}
	}
	return outcomes[0].err
}

// scene is a run, and what its owner, who may be a former one, knows of it.
type scene struct {
	id   runlog.RunID
	tail *runlog.Tail
	log  [][]byte
	// owner still has the run.
	owner bool
}

// scenes makes runs that somebody thinks are replica 1's. Nothing but the rule of the appends tells those that are not.
func scenes(b *bundle, w *runlog.Writer) map[string]func() scene {
	claim := func(owner runlog.ReplicaID, epoch runlog.Epoch) []byte { return claimRecord(b, owner, epoch) }
	return map[string]func() scene{
		"the owner": func() scene {
			id := b.newRun()
			return scene{id, b.open(w, id, 1), [][]byte{claim(1, 1)}, true}
		},
		"a former owner": func() scene {
			id := b.newRun()
			s := scene{id: id, tail: b.open(w, id, 1), log: [][]byte{claim(1, 1), claim(2, 2)}}
			b.claim(b.pool, id, 2)
			return s
		},
		// A failover has lost record 2, and the next owner's claim has its place.
		"a former owner, whose head another one has written": func() scene {
			id := b.newRun()
			s := scene{id: id, tail: b.open(w, id, 1), log: [][]byte{claim(1, 1), claim(2, 2)}}
			b.appendAll(s.tail, node(b, "lost", 1)).wantSeqs(2)
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 2`, id)
			b.claim(b.pool, id, 2)
			return s
		},
		// A failover has lost a claim with its epoch, and the next one has the same.
		"another owner's epoch and head": func() scene {
			id := b.newRun()
			epoch, head := b.claim(b.pool, id, 2)
			return scene{id: id, tail: w.Open(id, 1, epoch, head), log: [][]byte{claim(2, 1)}}
		},
		"a former claim of the owner, with the head of its present one": func() scene {
			id := b.newRun()
			b.claim(b.pool, id, 1)
			epoch, head := b.claim(b.pool, id, 1)
			return scene{id: id, tail: w.Open(id, 1, epoch-1, head), log: [][]byte{claim(1, 1), claim(1, 2)}}
		},
		"an owner that has released it": func() scene {
			id := b.newRun()
			s := scene{id: id, tail: b.open(w, id, 1), log: [][]byte{claim(1, 1)}}
			b.exec(`update pgexec.runs set owner = null, status = 'queued' where run_id = $1`, id)
			return s
		},
		"an owner that was buried": func() scene {
			id := b.newRun()
			s := scene{id: id, tail: b.open(w, id, 1), log: [][]byte{claim(1, 1)}}
			b.exec(`update pgexec.runs set owner = null, status = 'queued', orphaned_by = 1 where run_id = $1`, id)
			return s
		},
		// A failover has lost the newest commits; what comes behind them would leave a hole (G2).
		"the owner, whose head is lost": func() scene {
			id := b.newRun()
			s := scene{id: id, tail: b.open(w, id, 1), log: [][]byte{claim(1, 1), node(b, "a", 1)}}
			b.appendAll(s.tail, node(b, "a", 1), node(b, "lost", 1)).wantSeqs(2)
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 3`, id)
			return s
		},
	}
}

// row is a run's row as text: what was refused has not touched it.
func row(b *bundle, db querier, id runlog.RunID) (text string) {
	b.Helper()
	if err := db.QueryRow(b.ctx, `select r::text from pgexec.runs r where run_id = $1`, id).Scan(&text); err != nil {
		b.Fatal(err)
	}
	return text
}

// G1, G2, G3, G6: who is not the owner, or has lost its head, gets nothing into the log, by whatever statement, nor has an effect
// or changes the run's row; the owner does.
func TestFence_WhoDoesNotOwnTheRunAddsNothing_G2_G3(t *testing.T) {
	for _, way := range ways(t) {
		t.Run(way.name, func(t *testing.T) {
			b := setup(t)
			b.exec(`create table effects (id serial)`)
			w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Flushers = 1 })
			for name, make := range scenes(b, w) {
				s := make()
				effects, before := value[int](b, `select count(*) from effects`), row(b, b.pool, s.id)
				var records [][]byte
				var fate func() error
				b.together(w, func() { records, fate = way.send(b, s.tail) })
				err := fate()
				if s.owner {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					b.wantLog(s.id, append(s.log, records...)...)
					continue
				}
				if !isFenced(err) {
					t.Errorf("%s gets %v", name, err)
				}
				b.wantLog(s.id, s.log...)
				b.wantEffects(effects)
				if after := row(b, b.pool, s.id); after != before {
					t.Errorf("%s has changed the row from %s to %s", name, before, after)
				}
			}
		})
	}
}

// G3: a claim whose transaction is still open when the statement begins. Its snapshot shows the former owner, so that only
// the primary key, or the row's lock, can decide, when the claim has.
func TestFence_OpenClaimDecides_G3(t *testing.T) {
	for _, way := range ways(t) {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the claim commits: %v", way.name, commits), func(t *testing.T) {
				b := setup(t)
				b.exec(`create table effects (id serial)`)
				var l line
				l.requests.Store(1 << 40)
				w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Pool, cfg.Flushers = l.pool(b, nil), 1 })
				id := b.newRun()
				tail, tx := b.open(w, id, 1), b.begin()
				b.claim(tx, id, 2)
				claimed := row(b, tx, id)
				var records [][]byte
				var fate func() error
				b.together(w, func() { records, fate = way.send(b, tail) })
				way.met(b, &l, tx)
				if !commits {
					if err := tx.Rollback(b.ctx); err != nil {
						t.Fatal(err)
					}
					if err := fate(); err != nil {
						t.Error(err)
					}
					b.wantLog(id, append([][]byte{claimRecord(t, 1, 1)}, records...)...)
					return
				}
				b.commit(tx)
				if err := fate(); !isFenced(err) {
					t.Errorf("got %v", err)
				}
				b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2))
				b.wantEffects(0)
				if now := row(b, b.pool, id); now != claimed {
					t.Errorf("the row was changed from %s to %s", claimed, now)
				}
			})
		}
	}
}

// G3: two tails of one run in one batch, of a former claim and of the current one: each gets its own answer.
func TestAppend_FormerAndCurrentClaimInOneBatch_G3(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	var former, current []*appending
	var ids []runlog.RunID
	for range 4 {
		id := b.newRun()
		first := b.open(w, id, 1)
		b.claim(b.pool, id, 2)
		again := b.open(w, id, 1)
		ids = append(ids, id)
		if len(ids)%2 == 0 {
			current = append(current, b.appendAll(again, node(t, "a", 1), node(t, "b", 1)))
			former = append(former, b.appendAll(first, node(t, "late", 1)))
		} else {
			former = append(former, b.appendAll(first, node(t, "late", 1)))
			current = append(current, b.appendAll(again, node(t, "a", 1), node(t, "b", 1)))
		}
	}
	gate()
	for i, id := range ids {
		former[i].wantError(isFenced)
		current[i].wantSeqs(4)
		b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2), claimRecord(t, 1, 3), node(t, "a", 1), node(t, "b", 1))
	}
}

// The other order: the flush's rows are in, its transaction is still open, when the claim comes. The claim's seq
// is taken once the flush has committed; nothing of the flush is lost.
func TestAppend_FlushRacesClaim_G1(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	id, last := b.newRun(), b.newRun()
	if bytes.Compare(id[:], last[:]) > 0 { // the rows of a flush go in by the order of the ids
		id, last = last, id
	}
	tail, lastTail := b.open(w, id, 1), b.open(w, last, 1)
	hold := b.begin()
	b.claim(hold, last, 2)
	a := b.appendAll(tail, node(t, "a", 1), node(t, "b", 1))
	late := b.appendAll(lastTail, node(t, "late", 1))
	gate()
	flush := b.blockedOn(hold, 1)[0]

	claimed := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(b.ctx, `insert into pgexec.run_log (run_id, seq, record) values ($1, 2, $2)`, id, claimRecord(t, 3, 2))
		claimed <- err
	}()
	b.blockedBy(flush, 1)
	b.commit(hold)
	late.wantError(isFenced)
	a.wantSeqs(2)
	if err := await(b, claimed, "claim"); err == nil {
		t.Error("a claim took the seq of a committed append")
	}
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
}

// One run's refusal or fault leaves the others of its batch alone: among many good runs are some that a claim has
// fenced and one whose record the database does not take.
func TestAppend_OneBadRunLeavesTheOthers(t *testing.T) {
	b := setup(t)
	b.exec(`alter table pgexec.run_log add constraint no_poison check (record <> '\xbad0')`)
	w, gate := b.gatedWriter(nil)
	var good, fenced, bad []*appending
	var goodIDs []runlog.RunID
	for i := range 30 {
		id := b.newRun()
		tail := b.open(w, id, 1)
		switch i % 10 {
		case 3:
			b.claim(b.pool, id, 2)
			fenced = append(fenced, b.appendAll(tail, node(t, "late", 1), node(t, "later", 1)))
		case 7:
			bad = append(bad, b.appendAll(tail, []byte{0xba, 0xd0}, node(t, "never", 1)))
		default:
			good = append(good, b.appendAll(tail, node(t, "a", 1), node(t, "b", 1)))
			goodIDs = append(goodIDs, id)
		}
	}
	gate()
	for i, a := range good {
		a.wantSeqs(2)
		b.wantLog(goodIDs[i], claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
	}
	for _, a := range fenced {
		a.wantError(isFenced)
	}
	for _, a := range bad {
		a.wantError(func(err error) bool {
			var pgErr *pgconn.PgError
			return errors.As(err, &pgErr) && pgErr.ConstraintName == "no_poison"
		})
	}
}
