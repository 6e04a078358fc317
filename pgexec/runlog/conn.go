package runlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

const (
	// checkAfter is the idle time after which a connection is looked at before it is used.
	checkAfter = time.Second
	// checkTimeout is for the answer to that.
	checkTimeout = 2 * time.Second
	// closeTimeout bounds the goodbye to a server that may be gone.
	closeTimeout = time.Second
)

// maxConnName is what the server shows of an application_name, in bytes.
const maxConnName = 63

// ConnName is the application_name of a connection that a replica has beside its
// pool: what it is for and which replica's it is, behind the name that the address gives, if any.
func ConnName(given, role string, id ReplicaID) string {
	name := fmt.Sprintf("pgexec %s %d", role, id)
	if given == "" {
		return name
	}
	room := maxConnName - len(": ") - len(name)
	return strings.ToValidUTF8(given[:min(len(given), room)], "") + ": " + name
}

// flusherConfig is for a connection that has a session to itself.
func flusherConfig(base *pgx.ConnConfig, id ReplicaID) *pgx.ConnConfig {
	cfg := base.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = make(map[string]string)
	}
	cfg.RuntimeParams["application_name"] = ConnName(cfg.RuntimeParams["application_name"], "log", id)
	return cfg
}

// withConn calls fn with the flusher's connection and the time of one attempt, and marks errors after which the
// connection is gone.
func (f *flusher) withConn(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	f.line.Lock()
	defer f.line.Unlock()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.FlushTimeout)
	defer cancel()
	if err := f.connect(ctx); err != nil {
		return &connectError{err}
	}
	err := fn(ctx, f.conn)
	f.used = time.Now()
	if err != nil && f.conn.IsClosed() {
		f.conn = nil
		return &lostConnError{err}
	}
	return err
}

// connect makes sure of a connection that was alive a moment ago.
func (f *flusher) connect(ctx context.Context) error {
	if f.conn != nil && time.Since(f.used) > checkAfter && !f.answers(ctx) {
		f.disconnect()
	}
	if f.conn != nil {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, f.cfg.Conn)
	if err != nil {
		return err
	}
	f.conn = conn
	if _, err := conn.Exec(ctx, sql.RunlogSetup); err != nil {
		f.disconnect()
		return err
	}
	return nil
}

func (f *flusher) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return f.conn.Ping(ctx) == nil
}

// disconnect says goodbye if the server still listens. An error means that the connection is gone, which is what was wanted.
func (f *flusher) disconnect() {
	if f.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = f.conn.Close(ctx)
	f.conn = nil
}
