package wake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// ErrWanted says that somebody wants the parent paused or cancelled, so that
// it gets no further child. It wraps [runlog.ErrFenced]: the inbox says what is wanted.
var ErrWanted = fmt.Errorf("a pause or the end of the run is wanted: %w", runlog.ErrFenced)

// ErrNoChild says that the id of the child is another run's.
var ErrNoChild = errors.New("the run with that id is there already and no child")

// ErrNotStarted says that there is no child yet, where none was to be made.
var ErrNotStarted = errors.New("the child run is not started yet")

const (
	minChildPause = 5 * time.Millisecond
	maxChildPause = 200 * time.Millisecond
)

// ChildParams describes the child run that is a node's execution. Queue, trace
// and the role it is made for are its parent's.
type ChildParams struct {
	ParentID     runlog.RunID
	Owner        runlog.ReplicaID
	Epoch        runlog.Epoch
	ParentNodeID string
	// ChildID is derived from the parent's id and the node's: the same on every attempt.
	ChildID runlog.RunID
	Kind    string
	// Input is JSON. What jsonb cannot hold reaches the child with a replacement, as with any run.
	Input []byte
	// Limits is what the child may spend.
	Limits Limits
	// Priority defaults to the parent's.
	Priority int
	// OnlyFind has no child made that is not there yet: the error is [ErrNotStarted] then.
	OnlyFind bool
}

// StartChild makes the child run, or finds that it is there already. It fails
// with [runlog.ErrFenced] when the parent is not the owner's any more, and with
// [ErrWanted] when the parent is to be paused or cancelled: a request that goes
// down the tree misses no child. While somebody holds the parent's row it tries
// again until ctx is done. The queue that it returns has the wake of a child that was not there before; nobody is told of it yet.
func StartChild(ctx context.Context, pool *pgxpool.Pool, p ChildParams) (queue string, err error) {
	for pause := minChildPause; ; pause = min(2*pause, maxChildPause) {
		queue, err := startChild(ctx, pool, p)
		if err == nil {
			return queue, nil
		}
		if !errors.Is(err, errBusy) {
			return "", fmt.Errorf("start child run: %w", err)
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return "", fmt.Errorf("start child run: the parent's row is locked by another session: %w", context.Cause(ctx))
		}
	}
}

// childRow says what became of a start.
type childRow struct {
	Started *string // in which queue; null when it was not
	Existed *bool   // the id's run is that child; null when there is none
	Refused bool
	Ours    bool
}

func startChild(ctx context.Context, pool *pgxpool.Pool, p ChildParams) (queue string, err error) {
	l := p.Limits
	answer, err := one[childRow](ctx, pool, sql.LifeChild, p.ParentID, int32(p.Owner), int64(p.Epoch), p.ParentNodeID,
		p.ChildID, p.Kind, orNull(p.Input), p.Priority,
		l.MaxTokens, l.MaxCostNanoUSD, min(l.MaxNodes, math.MaxInt32), l.MaxWallMs, l.DeadlineUs, l.MaxParallel, l.SoftLimit, p.OnlyFind)
	switch {
	case err != nil:
		return "", err
	case answer.Started != nil:
		return *answer.Started, nil
	case answer.Existed != nil && *answer.Existed:
		return "", nil
	case answer.Existed != nil:
		return "", fmt.Errorf("%w of node %q of run %s: %s", ErrNoChild, p.ParentNodeID, p.ParentID, p.ChildID)
	case answer.Refused:
		return "", ErrWanted
	case !answer.Ours:
		return "", runlog.ErrFenced
	case p.OnlyFind:
		return "", ErrNotStarted
	}
	return "", errBusy
}

func orNull(json []byte) []byte {
	if len(json) == 0 {
		return []byte("null")
	}
	return json
}

// CancelChild cancels a child run and all below it; one that has ended, or was
// never made, is no error. It waits for locks that others hold on their rows. The queue that it
// returns, if any, may have wakes of them; neither of these is anybody told yet nor are owners.
func CancelChild(ctx context.Context, pool *pgxpool.Pool, id runlog.RunID, reason string) (queue string, err error) {
	// Each level of the tree is read when the one above is locked.
	err = runlog.Briefly(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql.WakeQuietly); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sql.LifeCancel, id, reason).Scan(&queue, nil)
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("cancel child run: %w", err)
	}
	return queue, nil
}
