package runlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tail is the end of one owned run's log. It is for any number of goroutines at once.
//
// After a failure everything that is queued or appended later gets the same error and is not
// sent: a record must not follow one that is not there.
type Tail struct {
	queue *queue
	id    RunID
	owner ReplicaID
	epoch Epoch

	// Guarded by queue.mu. The entry's seq is not kept: it is head + 1 + its place.
	head    Seq
	entries []entry
	// scheduled: in a ready list or in a flusher's hands, never both.
	scheduled bool
	err       error
}

// entry is one record that waits for its commit.
type entry struct {
	record []byte
	// finish is set for the record that ends the run.
	finish *FinishParams
	// tx is set for the record that commits with what a handler did in that transaction.
	tx   pgx.Tx
	done func(Seq, error)
}

// Append queues a record, which must not be changed any more, and never blocks. done is called
// exactly once: with the record's seq after its commit (G5), or with an error. Calls for one run come
// in the order of its appends, from a flusher's goroutine; only when the writer has stopped, from
// Append itself. done must not block, and the caller must not hold a lock that it takes.
func (t *Tail) Append(record []byte, done func(seq Seq, err error)) {
	t.queue.push(t, entry{record: record, done: done})
}

// AppendTx is Append in a transaction that [BeginTx] began, which it ends: what was done in tx and the record commit together
// or not at all. When they do not, and the run is still ours, the error is a [*TxError]: nothing is
// in the log, and what was done in tx has to be done again in another one.
func (t *Tail) AppendTx(tx pgx.Tx, record []byte, done func(seq Seq, err error)) {
	t.queue.push(t, entry{record: record, tx: tx, done: func(seq Seq, err error) {
		if err != nil {
			go rollback(tx) // when the commit was tried this does nothing
		}
		done(seq, err)
	}})
}

// rollback gives the transaction's connection back.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a failed one closes the connection, which rolls back as well
}

// FinishParams is the end of a run, or of its execution until somebody resumes it.
type FinishParams struct {
	// Record is the encoded record that says so: finished, or control for a pause.
	Record []byte
	// Status is succeeded, failed, cancelled or paused.
	Status string
	// Result is JSON text, or nil. What jsonb cannot hold is shown with a replacement; the exact bytes
	// are in the log at ResultSeq.
	Result []byte
	// ResultSeq is the seq of the record that holds the result; 0 for none.
	ResultSeq Seq
	// Error is what psql shows of a failure; empty for none.
	Error string
	// Reason is what psql shows of a pause; empty for none.
	Reason string
	// What the run has spent, its children included.
	InputTokens, OutputTokens, CostNanoUSD, Unpriced, Nodes int64
	// MayAsk says that people are asked to approve something.
	MayAsk bool
	// Inbox, if set, is the version of what has reached the run from outside that the decision rests on:
	// when there is more by now, nothing changes and the error is [ErrChanged].
	Inbox *int64
}

const (
	rollbackTimeout = 5 * time.Second

	minFinishPause = 10 * time.Millisecond
	maxFinishPause = 500 * time.Millisecond
)

// Finish appends the finished record, behind all that was appended before, and ends the run: status, result
// and the end of our ownership commit with the record or not at all, and so does the news for the run's
// parent. Runs that finish at the same time share a commit. While another session holds the
// run's row, or its parent's, Finish tries again; no flush waits for it. When ctx ends first, the run may be
// finished all the same.
func (t *Tail) Finish(ctx context.Context, params FinishParams) error {
	pace := backoff{least: minFinishPause, most: maxFinishPause}
	for {
		err := t.tryFinish(ctx, params)
		if !errors.Is(err, errBusy) {
			return err
		}
		if !pace.wait(ctx) {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

func (t *Tail) tryFinish(ctx context.Context, params FinishParams) error {
	done := make(chan error, 1)
	t.queue.push(t, entry{
		record: params.Record,
		finish: &params,
		done:   func(_ Seq, err error) { done <- err },
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
