package ownership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// lookTimeout bounds the second look at a session behind a proxy: with no
	// backend to spare, a transaction-mode pooler lets it wait for ever.
	lookTimeout = 3 * time.Second
	// closeTimeout bounds the goodbye to a server that may be gone.
	closeTimeout = time.Second
)

// connect opens the session's connection and sets it up. The token is a
// setting of this session, which a second look must find again.
func connect(ctx context.Context, cfg SessionConfig) (conn *pgx.Conn, token string, err error) {
	conn, err = pgx.ConnectConfig(ctx, sessionConfig(cfg.ConnConfig))
	if err != nil {
		return nil, "", err // pgx says "failed to connect to" and where
	}
	token = rand.Text()
	seconds := max(1, int(cfg.giveUpAfter()/time.Second))
	_, err = conn.Exec(ctx, sql.OwnershipSessionSetup, strconv.Itoa(seconds), millis(cfg.LateAfter), millis(cfg.giveUpAfter()/2), token)
	if err != nil {
		closeConn(conn)
		return nil, "", fmt.Errorf("set up session: %w", err)
	}
	return conn, token, nil
}

// sessionConfig keeps nothing on the server but the lock: no prepared
// statements, so that behind a pooler it is the pooler that is found, not a
// statement missing. The wait between two heartbeats ends by deadline and
// leaves the connection usable.
func sessionConfig(base *pgx.ConnConfig) *pgx.ConnConfig {
	cfg := base.Copy()
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = make(map[string]string)
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "pgexec session" // until its id is known
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	return cfg
}

// pooled is what a session left on its backend.
type pooled struct {
	token string
	id    runlog.ReplicaID
}

// refusePooler takes a second look at the session. A connection to the server
// itself was told its backend's pid when it began; if that is the one that
// answers, nothing stands between. Otherwise a second connection holds a backend
// in a transaction meanwhile: a pooler in transaction mode gives it ours.
func refusePooler(ctx context.Context, cfg SessionConfig, conn *pgx.Conn, left pooled) error {
	pid, err := queryValue[int32](ctx, conn, sql.OwnershipSessionBackend)
	if err != nil {
		return fmt.Errorf("look at session: %w", err)
	}
	if uint32(pid) == conn.PgConn().PID() {
		return secondLook(ctx, conn, pid, left)
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	other, err := pgx.ConnectConfig(ctx, sessionConfig(cfg.ConnConfig))
	if err != nil {
		return fmt.Errorf("look at session: %w", err)
	}
	defer closeConn(other)
	tx, err := other.Begin(ctx)
	if err != nil {
		return fmt.Errorf("look at session: %w", err)
	}
	otherPID, err := queryValue[int32](ctx, tx, sql.OwnershipSessionBackend)
	if err != nil {
		return fmt.Errorf("look at session: %w", err)
	}
	if otherPID == pid {
		return &PoolerError{Address: address(conn), Found: "another connection was given the session's backend"}
	}
	err = secondLook(ctx, conn, pid, left)
	if errors.Is(err, context.DeadlineExceeded) {
		return &PoolerError{Address: address(conn), Found: "the session has to wait for a backend"}
	}
	return err
}

// secondLook compares the session with what it left behind.
func secondLook(ctx context.Context, conn *pgx.Conn, pid int32, left pooled) error {
	var now int32
	var token string
	var locked bool
	if err := conn.QueryRow(ctx, sql.OwnershipSessionLook, int32(left.id)).Scan(&now, &token, &locked); err != nil {
		return fmt.Errorf("look at session: %w", err)
	}
	found := ""
	switch {
	case now != pid:
		found = "the session's backend changes between statements"
	case token != left.token:
		found = "the session's settings do not stay"
	case !locked:
		found = "the session's lock is on another backend"
	default:
		return nil
	}
	return &PoolerError{Address: address(conn), Found: found}
}

func address(conn *pgx.Conn) string {
	cfg := conn.Config()
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// closeConn says goodbye if the server still listens. An error means that the
// connection is gone, which is what was wanted.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
}

// queryValue returns the one value of a statement's one row.
func queryValue[T any](ctx context.Context, q querier, statement string, args ...any) (T, error) {
	rows, err := q.Query(ctx, statement, args...)
	if err != nil {
		var zero T
		return zero, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}
