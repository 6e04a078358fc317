package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// Buried is a dead replica whose runs were put back.
type Buried struct {
	ReplicaID runlog.ReplicaID
	Host      string
	PID       int
	// Silent is the time from the last heartbeat to the burial, by the database's clock.
	Silent time.Duration
	// Runs went back to the queue, each with a wake.
	Runs []runlog.RunID
	// Queues have wakes of these runs, and those that the replica had fetched; nobody is told of them yet.
	Queues []string
	// Jobs is how many wake jobs the replica had fetched and not used.
	Jobs int
	// Gone says that the replica is off the list. If not, somebody had locked a
	// run of it, and the next pass goes on.
	Gone bool
}

// notOrphaned is what runs.orphaned_by says of runs that were put back by their own replica.
var notOrphaned *int32

// beginner is a connection or a pool.
type beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// bury puts back all that a dead replica had, in one transaction. It returns
// nil when there is nothing to do here: the replica lives, is gone, is being
// buried by somebody else, or has a claim in flight. Read committed whatever the
// database's default is: what it puts back is seen after it has the locks.
func bury(ctx context.Context, db beginner, id runlog.ReplicaID, orphanedBy *int32) (*Buried, error) {
	b := Buried{ReplicaID: id}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var pid int32
		var silentUs, jobs int64
		var bounded string
		err := tx.QueryRow(ctx, sql.OwnershipBuryLock, int32(id)).Scan(&b.Host, &pid, &silentUs, &bounded)
		if err != nil {
			return err
		}
		b.PID, b.Silent = int(pid), time.Duration(silentUs)*time.Microsecond
		err = tx.QueryRow(ctx, sql.OwnershipBury, int32(id), orphanedBy).Scan(&b.Runs, &jobs, &b.Gone, &b.Queues)
		b.Jobs = int(jobs)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("put back runs of replica %d: %w", id, err)
	}
	return &b, nil
}
