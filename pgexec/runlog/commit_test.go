package runlog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// effect begins a transaction and does something in it that a test can count.
func (b *bundle) effect(pool *pgxpool.Pool) pgx.Tx {
	b.Helper()
	tx, err := runlog.BeginTx(b.ctx, pool)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx, `insert into effects default values`); err != nil {
		b.Fatal(err)
	}
	return tx
}

func (b *bundle) appendTx(t *runlog.Tail, tx pgx.Tx, record []byte) *appending {
	a := &appending{b: b, want: 1, all: make(chan struct{})}
	t.AppendTx(tx, record, a.done)
	return a
}

func (b *bundle) wantEffects(n int) {
	b.Helper()
	if got := value[int](b, `select count(*) from effects`); got != n {
		b.Errorf("%d effects, want %d", got, n)
	}
}

func isTxError(err error) bool {
	var tx *runlog.TxError
	return errors.As(err, &tx)
}

// G6: what a handler did in a transaction and its record commit together, in the order of the run's appends.
func TestAppendTx_EffectAndRecordCommitTogether_G6(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	want := [][]byte{claimRecord(t, 1, 1), node(t, "a", 1), node(t, "tx", 1), node(t, "b", 1)}
	before := b.appendAll(tail, want[1])
	tx := b.appendTx(tail, b.effect(b.pool), want[2])
	after := b.appendAll(tail, want[3])
	before.wantSeqs(2)
	tx.wantSeqs(3)
	after.wantSeqs(4)
	b.wantLog(id, want...)
	b.wantEffects(1)
}

// effectAt is effect in a transaction of that isolation level, with its one snapshot. Of another statement than the insert the
// effect is that it has written nothing yet.
func (b *bundle) effectAt(level, statement string) pgx.Tx {
	b.Helper()
	tx, err := runlog.BeginTx(b.ctx, b.pool)
	if err != nil {
		b.Fatal(err)
	}
	for _, statement := range []string{`set transaction isolation level ` + level, statement} {
		if _, err := tx.Exec(b.ctx, statement); err != nil {
			b.Fatal(err)
		}
	}
	return tx
}

const anEffect = `insert into effects default values`

// snapshots are the isolation levels at which a transaction does not see what commits after its first statement.
var snapshots = []string{"repeatable read", "serializable"}

// G6: a transaction that does not see what was recorded since it began commits with its record all the same.
func TestAppendTx_CommitsBehindRecordsItDoesNotSee_G6(t *testing.T) {
	for _, level := range snapshots {
		t.Run(level, func(t *testing.T) {
			b := setup(t)
			b.exec(`create table effects (id serial)`)
			tail := b.open(b.writer(nil), b.newRun(), 1)
			var open []pgx.Tx
			for _, statement := range []string{anEffect, anEffect, `select 1`, anEffect, `select 1`} {
				open = append(open, b.effectAt(level, statement))
			}
			b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
			for i, tx := range open {
				b.appendTx(tail, tx, node(t, fmt.Sprint("tx", i), 1)).wantSeqs(runlog.Seq(3 + i))
			}
			b.appendAll(tail, node(t, "b", 1)).wantSeqs(8)
			b.wantEffects(3)
		})
	}
}

// G3, G6: a former owner's transaction that sees neither the claim nor what was recorded before it leaves nothing.
func TestAppendTx_FormerOwnerThatSeesNoClaimIsFenced_G3(t *testing.T) {
	for _, level := range snapshots {
		for name, change := range map[string]func(b *bundle, id runlog.RunID, tail *runlog.Tail){
			"claimed": func(b *bundle, id runlog.RunID, _ *runlog.Tail) { b.claim(b.pool, id, 2) },
			"appended and claimed": func(b *bundle, id runlog.RunID, tail *runlog.Tail) {
				b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
				b.claim(b.pool, id, 2)
			},
			"lost in a failover": func(b *bundle, id runlog.RunID, tail *runlog.Tail) {
				b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
				b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 2`, id)
			},
			"lost in a failover, written by another one": func(b *bundle, id runlog.RunID, tail *runlog.Tail) {
				b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
				b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 2`, id)
				b.claim(b.pool, id, 2)
			},
		} {
			t.Run(level+", "+name, func(t *testing.T) {
				b := setup(t)
				b.exec(`create table effects (id serial)`)
				id := b.newRun()
				tail := b.open(b.writer(nil), id, 1)
				tx := b.effectAt(level, anEffect)
				change(b, id, tail)
				before := value[string](b, `select string_agg(seq || encode(record, 'hex'), ' ' order by seq) from pgexec.run_log`)
				b.appendTx(tail, tx, node(t, "tx", 1)).wantError(func(err error) bool { return errors.Is(err, runlog.ErrFenced) })
				if after := value[string](b, `select string_agg(seq || encode(record, 'hex'), ' ' order by seq) from pgexec.run_log`); after != before {
					t.Errorf("the log is %s, want %s", after, before)
				}
				b.wantEffects(0)
			})
		}
	}
}

// G3: a claim that comes at any moment of such a commit is behind the record, or nothing of it is there.
func TestAppendTx_RacesWithClaims_G3(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	w := b.writer(nil)
	committed := 0
	for round := range 60 {
		id := b.newRun()
		tail := b.open(w, id, 1)
		tx := b.effectAt(snapshots[round%2], anEffect)
		b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
		claimed := make(chan error, 1)
		go func() { claimed <- b.claimAnyhow(id, 2) }()
		done := make(chan error, 1)
		tail.AppendTx(tx, node(t, "tx", 1), func(_ runlog.Seq, err error) { done <- err })
		err := <-done
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		want := [][]byte{claimRecord(t, 1, 1), node(t, "a", 1)}
		switch {
		case err == nil:
			committed++
			want = append(want, node(t, "tx", 1))
		case !errors.Is(err, runlog.ErrFenced):
			t.Fatal(err)
		}
		b.wantLog(id, append(want, claimRecord(t, 2, 2))...)
		b.wantEffects(committed)
	}
	t.Logf("%d of 60 came before the claim", committed)
}

// claimAnyhow is a claim in a transaction, again when an append came first.
func (b *bundle) claimAnyhow(id runlog.RunID, owner runlog.ReplicaID) error {
	for {
		err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			_, _, err := b.tryClaim(tx, id, owner)
			return err
		})
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "23505" {
			return err
		}
	}
}

// A transaction that cannot commit leaves nothing, and the run goes on.
func TestAppendTx_FailedCommitLeavesTheRunAsItWas(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id int default 1 unique deferrable initially deferred)`)
	b.exec(`insert into effects default values`)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendTx(tail, b.effect(b.pool), node(t, "tx", 1)).wantError(isTxError)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1))
	b.wantEffects(1)
}

// G6: a transaction that was ended, or replaced by another one, has no record; the run goes on.
func TestAppendTx_EndedByItsHandler_G6(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	tail := b.open(b.writer(nil), b.newRun(), 1)
	for i, end := range []string{`rollback`, `commit`, `rollback and chain`, `rollback; begin`} {
		tx := b.effect(b.pool)
		if _, err := tx.Exec(b.ctx, end); err != nil {
			t.Fatal(err)
		}
		b.appendTx(tail, tx, node(t, "tx", 1)).wantError(func(err error) bool { return isTxError(err) && errors.Is(err, runlog.ErrTxEnded) })
		b.appendAll(tail, node(t, "a", 1)).wantSeqs(runlog.Seq(2 + i))
	}
	b.wantEffects(1)
}

// G6, C18: a transaction that takes away what its own record builds on has failed; the run is not lost, to be claimed and to
// do it again for ever.
func TestAppendTx_ThatUndoesItsRunFails_C18(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	id := b.newRun()
	tail := b.open(b.writer(nil), id, 1)
	for i, undo := range []string{
		`truncate pgexec.run_log`, `delete from pgexec.run_log`, `delete from pgexec.runs`,
		`update pgexec.runs set owner = owner + 1`, `update pgexec.runs set epoch = epoch + 1`,
	} {
		tx := b.effect(b.pool)
		if _, err := tx.Exec(b.ctx, undo); err != nil {
			t.Fatal(err)
		}
		b.appendTx(tail, tx, node(t, "tx", 1)).wantError(func(err error) bool { return isTxError(err) && errors.Is(err, runlog.ErrTxUndoes) })
		b.appendAll(tail, node(t, "a", 1)).wantSeqs(runlog.Seq(2 + i))
	}
	b.wantEffects(0)
}

// cutTx loses its connection at the commit.
type cutTx struct {
	pgx.Tx
	// committed: the server got the commit, and its answer was lost.
	committed bool
}

func (tx *cutTx) Commit(ctx context.Context) error {
	if !tx.committed {
		tx.Conn().Close(ctx)
	}
	if err := tx.Tx.Commit(ctx); err != nil {
		return err
	}
	return errCut
}

// G6: the commit, or the answer to it, is lost with its connection: effect and
// record are both there and confirmed, or neither.
func TestAppendTx_LostConnection_G6(t *testing.T) {
	for name, committed := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.exec(`create table effects (id serial)`)
			w := b.writer(nil)
			id := b.newRun()
			tail := b.open(w, id, 1)
			tx := b.appendTx(tail, &cutTx{b.effect(b.pool), committed}, node(t, "tx", 1))
			after := b.appendAll(tail, node(t, "a", 1))
			if committed {
				tx.wantSeqs(2)
				after.wantSeqs(3)
				b.wantEffects(1)
				return
			}
			tx.wantError(isTxError)
			after.wantSeqs(2)
			b.wantEffects(0)
			b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1))
		})
	}
}

// slowTx commits when it may.
type slowTx struct {
	pgx.Tx
	may <-chan struct{}
}

func (tx slowTx) Commit(ctx context.Context) error {
	<-tx.may
	return tx.Tx.Commit(ctx)
}

// A transaction whose locks hold up every flush commits all the same: none of them can end before it.
func TestAppendTx_WaitsForNoFlush(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	w := b.writer(nil)
	tail := b.open(w, b.newRun(), 1)
	var others []*runlog.Tail
	for range 3 { // one more than there are flushers
		others = append(others, b.open(w, b.newRun(), 1))
	}
	tx := b.effect(b.pool)
	if _, err := tx.Exec(b.ctx, `lock table pgexec.run_log`); err != nil {
		t.Fatal(err)
	}
	var held []*appending
	for i, other := range others {
		held = append(held, b.appendAll(other, node(t, "a", 1)))
		b.blockedOn(tx, min(i+1, 2))
	}
	b.appendTx(tail, tx, node(t, "tx", 1)).wantSeqs(2)
	for _, a := range held {
		a.wantSeqs(2)
	}
	b.wantEffects(1)
}

// More commits than there are flushers take their time: other runs are appended to meanwhile, and Close waits for all.
func TestAppendTx_SlowCommitsHoldUpNobody(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	w := b.writer(nil)
	may := make(chan struct{})
	var slow []*appending
	for range 3 {
		tail := b.open(w, b.newRun(), 1)
		slow = append(slow, b.appendTx(tail, slowTx{b.effect(b.pool), may}, node(t, "tx", 1)), b.appendAll(tail, node(t, "a", 1)))
	}
	b.appendAll(b.open(w, b.newRun(), 1), node(t, "b", 1)).wantSeqs(2)
	close(may)
	w.Close()
	for i, a := range slow {
		a.wantSeqs(runlog.Seq(2 + i%2))
	}
	b.wantEffects(3)
}

// C06, G4: the transaction of an owner that freezes between its record and the commit keeps nobody from claiming the run: the
// server ends it.
func TestAppendTx_FrozenBeforeTheCommitHoldsUpNoClaim_C06(t *testing.T) {
	for _, level := range append([]string{"read committed"}, snapshots...) {
		t.Run(level, func(t *testing.T) {
			b := setup(t)
			b.exec(`create table effects (id serial)`)
			id := b.newRun()
			tail := b.open(b.writer(nil), id, 1)
			tx := b.effectAt(level, anEffect)
			b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
			thawed := make(chan struct{})
			frozen := b.appendTx(tail, slowTx{tx, thawed}, node(t, "tx", 1))
			b.until(func() bool {
				return value[bool](b, `select exists (select from pg_locks l join pg_stat_activity a using (pid) where a.datname = current_database()
					and a.state = 'idle in transaction' and l.relation = 'pgexec.run_log'::regclass and l.mode = 'RowExclusiveLock')`)
			})
			if err := b.claimAnyhow(id, 2); err != nil {
				t.Fatal(err)
			}
			close(thawed)
			frozen.wantError(func(err error) bool { return errors.Is(err, runlog.ErrFenced) })
			b.wantEffects(0)
			b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), claimRecord(t, 2, 2))
		})
	}
}

// G8: after a failover has left many commits unanswered, whose they are is found out on the flushers' connections.
func TestAppendTx_UnansweredCommitsTakeNoConnections_G8(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	const flushers, n = 2, 12
	var dials atomic.Int64
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.Flushers = flushers
		cfg.Conn = b.pool.Config().ConnConfig
		dial := cfg.Conn.DialFunc
		cfg.Conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
	})
	var all []*appending
	for i := range n {
		all = append(all, b.appendTx(b.open(w, b.newRun(), 1), &cutTx{b.effect(b.pool), i%2 == 0}, node(t, "tx", 1)))
	}
	for i, a := range all {
		if i%2 == 0 {
			a.wantSeqs(2)
		} else {
			a.wantError(isTxError)
		}
	}
	b.wantEffects(n / 2)
	if made := dials.Load(); made > flushers {
		t.Errorf("%d connections were made for %d flushers", made, flushers)
	}
}
