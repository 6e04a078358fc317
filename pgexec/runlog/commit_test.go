package runlog_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
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

// G3, G6: a former owner's transaction leaves neither record nor effect.
func TestAppendTx_FormerOwnerIsFenced_G3(t *testing.T) {
	b := setup(t)
	b.exec(`create table effects (id serial)`)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	tx := b.effect(b.pool)
	b.claim(b.pool, id, 2)
	b.appendTx(tail, tx, node(t, "tx", 1)).wantError(func(err error) bool { return errors.Is(err, runlog.ErrFenced) })
	b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2))
	b.wantEffects(0)
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
