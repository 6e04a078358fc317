package runlog

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Sender is a connection or a pool.
type Sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// QueryPlanned runs a statement of a hot path, planned as [sql.PlanByKey] or another such statement says,
// and returns its rows by position. It is one transaction in one round trip, which the server ends without us.
func QueryPlanned[T any](ctx context.Context, db Sender, plan, statement string, args ...any) ([]T, error) {
	var all []T
	var batch pgx.Batch
	batch.Queue(plan)
	batch.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		return err
	})
	if err := db.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	return all, nil
}
