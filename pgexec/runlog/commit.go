package runlog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// beginner is a pool or one of its connections.
type beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// BeginTx begins a transaction that can commit with a record, see [Tail.AppendTx].
func BeginTx(ctx context.Context, db beginner) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin;" + sql.RunlogBeginTx})
}

// commitAll commits on the transactions' own connections, in a goroutine for each: what a handler
// did may take long to commit, and the appends of other runs do not wait for it, nor it for them. What
// it reads of the log is on a flusher's connection, between its flushes: however many commits a failover
// leaves unanswered, there are no more connections.
func (q *queue) commitAll(ctx context.Context, flushers []*flusher) {
	for i := 0; ; i = (i + 1) % len(flushers) {
		b, ok := q.takeCommit()
		if !ok {
			return
		}
		f := flushers[i]
		f.bury(b.dead)
		f.apart.Go(func() { f.commit(ctx, b.flights) })
	}
}

// commit ends the one transaction of a flight: with the run's next record in it,
// fenced as any append, or not at all. It is not sent again: what the handler
// did in the transaction is gone with it.
func (f *flusher) commit(ctx context.Context, flights []*flight) {
	if len(flights) == 0 {
		return
	}
	fl := flights[0]
	fl.outcome = refused
	err := f.sendTx(ctx, fl)
	switch {
	case err == nil:
		f.settle(ctx, flights)
	case ctx.Err() != nil:
		f.resolve(flights, ErrClosed)
	default: // perhaps it committed and the answer was lost, or a claim was in its way: the log knows
		f.resolve(f.look(ctx, flights), &TxError{err})
	}
}

// sendTx commits, or rolls back.
func (f *flusher) sendTx(ctx context.Context, fl *flight) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.FlushTimeout)
	defer cancel()
	tx := fl.entries[0].tx
	ours, err := f.appendIn(ctx, tx, fl)
	if err != nil || !ours {
		rollback(tx)
		if err == nil {
			err = f.refusedBy(ctx, fl)
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	fl.outcome = written
	return nil
}

// appendIn writes the record in the transaction and reports whether it may commit.
//
// A transaction with a snapshot of its own may not see the head, which was recorded after it began. Then the record is
// written first, and whether it may be there is read on another connection: from then on no claim can commit before this
// transaction has ended, since it would have to write at the same place.
func (f *flusher) appendIn(ctx context.Context, tx pgx.Tx, fl *flight) (ours bool, err error) {
	t, record := fl.tail, fl.entries[0].record
	tag, err := tx.Exec(ctx, sql.RunlogAppendTx, t.id, int64(fl.head), record, int32(t.owner), int64(t.epoch))
	if err != nil || tag.RowsAffected() == 1 {
		return err == nil, err
	}
	var xid string
	err = tx.QueryRow(ctx, sql.RunlogAppendTxAhead, t.id, int64(fl.head), record).Scan(&xid, nil)
	switch {
	case err == nil:
		return f.isNext(ctx, fl, xid)
	case errors.Is(err, pgx.ErrNoRows):
		return false, checkOpen(ctx, tx)
	default:
		return false, err
	}
}

// refusedBy tells a run that is no longer ours (nil) from one that is, although the transaction, now rolled back, could not see
// it: run again for a lost run, such a handler would do the same to it for ever.
func (f *flusher) refusedBy(ctx context.Context, fl *flight) error {
	ours, err := f.ask(ctx, sql.RunlogMayAppend, fl)
	if err == nil && ours {
		err = ErrTxUndoes
	}
	return err
}

// isNext reports whether a record that was written in that transaction is the run's next one, and the run still ours.
func (f *flusher) isNext(ctx context.Context, fl *flight, xid string) (bool, error) {
	return f.ask(ctx, sql.RunlogIsNext, fl, xid)
}

// ask has the flusher's connection answer a question about a flight's run.
func (f *flusher) ask(ctx context.Context, question string, fl *flight, more ...any) (is bool, err error) {
	t, pace := fl.tail, flushBackoff()
	args := append([]any{t.id, int64(fl.head), int32(t.owner), int64(t.epoch)}, more...)
	for {
		err = f.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, question, args...).Scan(&is)
		})
		if err == nil || !mayRetry(err) || !pace.wait(ctx) {
			return is, err
		}
	}
}

// checkOpen tells a transaction that was ended from one whose record is refused. What the handler began instead is rolled back.
func checkOpen(ctx context.Context, tx pgx.Tx) error {
	var open bool
	if err := tx.QueryRow(ctx, sql.RunlogTxIsOpen).Scan(&open); err != nil {
		return err
	}
	if !open {
		return ErrTxEnded
	}
	return nil
}
