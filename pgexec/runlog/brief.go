package runlog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// Briefly runs f in a transaction, read committed whatever the database's default is, so that each statement sees what the one before
// has waited for. It may lock runs: when this process freezes in the middle, the server ends it within seconds (C06).
// f uses nothing but the transaction.
func Briefly(ctx context.Context, db beginner, f func(pgx.Tx) error) error {
	opts := pgx.TxOptions{BeginQuery: "begin isolation level read committed;" + sql.RunlogBeginBrief}
	return pgx.BeginTxFunc(ctx, db, opts, f)
}
