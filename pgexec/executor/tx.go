package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// ErrTxOfRecord is what a handler gets that ends the transaction of its record itself.
var ErrTxOfRecord = errors.New("this transaction commits with the node's record: return from the handler to commit it, or with an error to roll it back")

const rollbackTimeout = 5 * time.Second

// AfterFunc gets a connection when a transaction on it has ended, before the
// pool gets it back. What the pool set up when it connected may then be gone: such a connection is closed.
type AfterFunc func(ctx context.Context, conn *pgx.Conn)

// lazyTx is the transaction of one attempt, begun when the handler asks for it.
type lazyTx struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	tx    *recordTx
	ended bool
}

func (l *lazyTx) get(ctx context.Context, after AfterFunc) (pgx.Tx, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, ErrTxOfRecord
	}
	if l.tx == nil {
		tx, err := beginRecordTx(ctx, l.pool)
		if err != nil {
			return nil, fmt.Errorf("begin the transaction of the node's record: %w", err)
		}
		l.tx = tx
	}
	if after != nil {
		l.tx.after = append(l.tx.after, after)
	}
	return handlersTx{l.tx}, nil
}

// take ends the handler's time with the transaction; nil if it asked for none.
func (l *lazyTx) take() pgx.Tx {
	l.mu.Lock()
	defer l.mu.Unlock()
	tx := l.tx
	l.tx, l.ended = nil, true
	if tx == nil {
		return nil
	}
	return tx
}

// recordTx is a transaction that gives its connection back when it has ended.
type recordTx struct {
	pgx.Tx
	conn  *pgxpool.Conn
	pool  *pgxpool.Pool
	after []AfterFunc
	once  sync.Once
}

func beginRecordTx(ctx context.Context, pool *pgxpool.Pool) (*recordTx, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := runlog.BeginTx(ctx, conn)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &recordTx{Tx: tx, conn: conn, pool: pool}, nil
}

// Commit commits. Nobody waits for what comes after.
func (tx *recordTx) Commit(ctx context.Context) error {
	defer tx.giveBack()
	return tx.Tx.Commit(ctx)
}

// Rollback rolls back, unless the transaction has ended already.
func (tx *recordTx) Rollback(ctx context.Context) error {
	defer tx.giveBack()
	return tx.Tx.Rollback(ctx)
}

func (tx *recordTx) giveBack() {
	tx.once.Do(func() {
		if len(tx.after) == 0 {
			tx.conn.Release()
			return
		}
		go func() {
			defer tx.conn.Release()
			ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
			defer cancel()
			for _, after := range tx.after {
				after(ctx, tx.conn.Conn())
			}
			if cfg := tx.pool.Config(); cfg.AfterConnect != nil || cfg.ConnConfig.AfterConnect != nil {
				_ = tx.conn.Conn().Close(ctx) // ended in any case
			}
		}()
	})
}

// handlersTx is the transaction as its handler sees it: one that it cannot end.
type handlersTx struct{ pgx.Tx }

func (handlersTx) Commit(context.Context) error   { return ErrTxOfRecord }
func (handlersTx) Rollback(context.Context) error { return ErrTxOfRecord }

// afterTx is the failure of a handler that has used the transaction: final, if it has ended it by itself, since what it
// committed with that it would do again.
func afterTx(tx pgx.Tx, f *Failure) *Failure {
	if tx == nil {
		return f
	}
	if conn := tx.Conn().PgConn(); conn.IsClosed() || conn.TxStatus() != idle {
		return f
	}
	return &Failure{Err: fmt.Errorf("%w (%w)", f.Err, runlog.ErrTxEnded), Code: f.Code, Stack: f.Stack, Permanent: true}
}

// idle is the status of a connection without a transaction.
const idle = 'I'

// rollback gives up what an attempt did in its transaction.
func rollback(tx pgx.Tx) {
	if tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a failed one closes the connection, which rolls back as well
}

// appendTx is append for a node that has done something in its record's
// transaction: both commit or neither. If neither does and the run is still
// ours, the attempt has failed.
func (r *Run) appendTx(a *attempt, rec *pb.Record) error {
	raw, err := runlog.Encode(rec)
	if err != nil {
		return err
	}
	r.flight.sent(rec)
	tx := a.tx
	a.tx = nil
	r.tail.AppendTx(tx, raw, func(seq runlog.Seq, err error) {
		r.mail.put(event{appended: rec, seq: seq, err: err, ofTx: a})
	})
	return nil
}
