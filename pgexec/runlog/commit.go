package runlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// commitApart commits on the transaction's own connection, in a goroutine of its own: what a handler
// did may take long to commit, and the appends of other runs do not wait for it. A look
// that this takes is on the flusher's connection, between its flushes: however many commits a failover
// leaves unanswered, there are no more connections.
func (f *flusher) commitApart(ctx context.Context, flights []*flight) {
	f.apart.Go(func() { f.commit(ctx, flights) })
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
	case errors.Is(err, errUnanswered): // perhaps committed: the log knows
		f.resolve(f.look(ctx, flights), &TxError{err})
	default:
		f.resolve(flights, &TxError{err})
	}
}

// errUnanswered: a commit was sent, and what the server made of it is not known.
var errUnanswered = errors.New("the connection ended before the answer came")

func (f *flusher) sendTx(ctx context.Context, fl *flight) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.FlushTimeout)
	defer cancel()
	t, tx := fl.tail, fl.entries[0].tx
	tag, err := tx.Exec(ctx, sql.RunlogAppendTx, t.id, int64(fl.head), fl.entries[0].record, int32(t.owner), int64(t.epoch))
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		defer rollback(tx)
		return checkOpen(ctx, tx)
	}
	if err := tx.Commit(ctx); err != nil {
		if !refusedCommit(err) {
			return fmt.Errorf("%w: %w", errUnanswered, err)
		}
		return err
	}
	fl.outcome = written
	return nil
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

// refusedCommit: the server answered that it rolled back.
func refusedCommit(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &pg) && pg.Severity == "ERROR"
}
