package wake

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// ParkParams names a run as its owner knows it, and what it will wait for.
type ParkParams struct {
	RunID runlog.RunID
	Owner runlog.ReplicaID
	Epoch runlog.Epoch
	// Inbox is the version that the owner has seen.
	Inbox int64
	// DueUs is the time, in microseconds since 1970 on the database's clock, at
	// which the run is due whatever else happens; 0 for never.
	DueUs int64
	// Held are the fleet-wide limits that hold nodes of the run, which is woken when one of them lets it go on.
	Held []Held
	// Reason is what psql shows of the wait.
	Reason string
	// MayAsk says that people are asked to approve something.
	MayAsk bool
	// What the run has spent, its children included.
	InputTokens, OutputTokens, CostNanoUSD, Unpriced, Nodes int64
}

// Held is a fleet-wide limit that holds a run, and since when: of the runs that wait for it the first is woken first.
type Held struct {
	Kind, Key string
	Since     time.Time
}

// Park gives up a run that only waits: nobody owns it until its time comes or
// something reaches it. False means that something has reached it since the
// owner looked, is about to, or that its time has come: look again. After that
// either the park or the change is seen by the other one (C11). An error that
// wraps [runlog.ErrFenced] says that the run is not the owner's, perhaps
// because an earlier call did park it.
func Park(ctx context.Context, pool *pgxpool.Pool, p ParkParams) (parked bool, err error) {
	var due *time.Time
	if p.DueUs != 0 {
		t := time.UnixMicro(p.DueUs)
		due = &t
	}
	kinds, keys, sinces := []string{}, []string{}, []time.Time{}
	for _, h := range p.Held {
		kinds, keys, sinces = append(kinds, h.Kind), append(keys, h.Key), append(sinces, h.Since)
	}
	answer, err := one[struct{ Parked, Ours bool }](ctx, pool, sql.LifePark,
		p.RunID, int32(p.Owner), int64(p.Epoch), p.Inbox, due, []byte(p.Reason), kinds, keys, sinces,
		p.InputTokens, p.OutputTokens, p.CostNanoUSD, p.Unpriced, p.Nodes, p.MayAsk)
	if err == nil && !answer.Parked && !answer.Ours {
		err = runlog.ErrFenced
	}
	if err != nil {
		return false, fmt.Errorf("park run: %w", err)
	}
	return answer.Parked, nil
}

// one runs a statement of a hot path that answers one row.
func one[T any](ctx context.Context, pool *pgxpool.Pool, statement string, args ...any) (row T, err error) {
	rows, err := runlog.QueryPlanned[T](ctx, pool, sql.PlanByKey, statement, args...)
	if err != nil {
		return row, err
	}
	return rows[0], nil
}
