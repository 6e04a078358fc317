package ownership

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	minReleasePause = 5 * time.Millisecond
	maxReleasePause = 100 * time.Millisecond
)

// Held is a run with the epoch it was claimed at.
type Held struct {
	RunID runlog.RunID
	Epoch runlog.Epoch
	// Inbox is the version of what has reached the run from outside, as [Owned]
	// reads it. [Release] has no need of it.
	Inbox int64
}

// ReleaseOpts are options of [Release].
type ReleaseOpts struct {
	// WaitingKinds are the kinds the released runs need and this replica has
	// not. The runs get no wake; a replica that has one of the kinds finds them.
	WaitingKinds []string
	// After, when positive, is how long the runs are to wait before they are claimed again. They get no wake
	// before.
	After time.Duration
	// Reason says for people what the runs wait for. Defaults to the kinds.
	Reason string
}

// Released is what became of a release.
type Released struct {
	// Queues have new wakes, of which nobody is told yet.
	Queues []string
	// Locked is how many of the runs are still ours, since somebody else has locked their rows.
	Locked int
}

// Release gives runs back to the queue, with a wake, in one statement. Runs
// that are not ours at that epoch any more are left alone. A run whose row
// somebody else has locked is tried again until ctx is done.
func Release(ctx context.Context, pool *pgxpool.Pool, id runlog.ReplicaID, held []Held, opts *ReleaseOpts) (Released, error) {
	var all Released
	for pause := minReleasePause; ; pause = min(2*pause, maxReleasePause) {
		released, err := TryRelease(ctx, pool, id, held, opts)
		all.Queues, all.Locked = append(all.Queues, released.Queues...), released.Locked
		if err != nil || all.Locked == 0 {
			return all, err
		}
		// Those already released do not match again.
		select {
		case <-ctx.Done():
			return all, fmt.Errorf("release runs: %d of %d are locked by another session: %w", all.Locked, len(held), ctx.Err())
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// TryRelease is [Release] that waits for nobody.
func TryRelease(ctx context.Context, pool *pgxpool.Pool, id runlog.ReplicaID, held []Held, opts *ReleaseOpts) (Released, error) {
	var o ReleaseOpts
	if opts != nil {
		o = *opts
	}
	if len(o.WaitingKinds) > 0 {
		o.Reason = cmp.Or(o.Reason, "waits for kind "+strings.Join(o.WaitingKinds, ", "))
	}
	runIDs, epochs := make([]runlog.RunID, len(held)), make([]int64, len(held))
	for i, h := range held {
		runIDs[i], epochs[i] = h.RunID, int64(h.Epoch)
	}
	var still []runlog.RunID
	var queues []string
	err := pool.QueryRow(ctx, sql.OwnershipRelease, int32(id), runlog.Texts(runIDs), epochs, o.WaitingKinds, []byte(o.Reason), o.After.Microseconds()).Scan(&still, &queues)
	switch {
	case lostRace(err):
		return Released{Locked: len(held)}, nil
	case err != nil:
		return Released{}, fmt.Errorf("release runs: %w", err)
	}
	return Released{Queues: queues, Locked: len(still)}, nil
}

// Owned returns the runs that the database says the replica owns.
func Owned(ctx context.Context, pool *pgxpool.Pool, id runlog.ReplicaID) ([]Held, error) {
	rows, err := pool.Query(ctx, sql.OwnershipOwned, int32(id))
	if err != nil {
		return nil, fmt.Errorf("read owned runs: %w", err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Held])
	if err != nil {
		return nil, fmt.Errorf("read owned runs: %w", err)
	}
	return held, nil
}
