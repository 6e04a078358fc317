package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lockPoll is how often a migrator asks whether another one is done.
const lockPoll = 50 * time.Millisecond

// withLock runs fn while this process holds the migration lock of the database.
//
// The lock belongs to a transaction of a connection of its own, so that it works with a pool of one connection and
// through a transaction-mode pooler. It is only ever tried, and held without a snapshot: CREATE INDEX CONCURRENTLY waits
// for snapshots, so that a migration that waited for its table would never go on.
// Should that connection die, fn goes on; the primary key of schema_migration then still lets each migration land once.
func withLock(ctx context.Context, pool *pgxpool.Pool, fn func() error) error {
	conn, err := connect(ctx, pool)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		locked, err := tryLock(ctx, conn)
		if err != nil {
			return fmt.Errorf("take migration lock: %w", err)
		}
		if locked {
			return fn()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("take migration lock: another migration is running: %w", context.Cause(ctx))
		case <-poll.C:
		}
	}
}

// connect opens a connection as the pool would.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	cfg := pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, fmt.Errorf("prepare connection: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to database: %w", err)
	}
	if encoding := conn.PgConn().ParameterStatus("client_encoding"); encoding != "" && encoding != "UTF8" { // a pooler may not say
		closeConn(ctx, conn)
		return nil, fmt.Errorf("the connection's client_encoding is %s, and must be UTF8: add client_encoding=UTF8 to the database's address", encoding)
	}
	return conn, nil
}

// tryLock leaves a transaction open on conn exactly if it got the lock.
func tryLock(ctx context.Context, conn *pgx.Conn) (bool, error) {
	tx, err := conn.BeginTx(ctx, txOptions)
	if err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, sessionSettingsSQL); err != nil {
		return false, err
	}
	var locked bool
	// In the simple protocol no portal, and so no snapshot, stays behind in the open transaction.
	if err := tx.QueryRow(ctx, lockTrySQL, pgx.QueryExecModeSimpleProtocol).Scan(&locked); err != nil || locked {
		return locked, err
	}
	return false, tx.Rollback(ctx)
}

// closeConn ends the connection, and with it its lock, also when ctx is done.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// The server ends the session whether or not it could be told.
	_ = conn.Close(ctx)
}
