package runlog_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// line is the network between a pool and the server. It can be cut where it hurts.
type line struct {
	// answers and requests count down, from a number that a test sets. At zero the connection is cut: when
	// a finished statement's answer comes in, so that the server has committed and the client does not know;
	// or when a statement goes out, before the server sees it.
	answers, requests atomic.Int64
	// down refuses new connections.
	down  atomic.Bool
	dials atomic.Int64
}

var errCut = errors.New("line is cut")

// pool is a pool of the test's database whose connections go through the line.
func (l *line) pool(b *bundle, change func(*pgxpool.Config)) *pgxpool.Pool {
	b.Helper()
	cfg := b.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.dials.Add(1)
		if l.down.Load() {
			return nil, errCut
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, line: l}, nil
	}
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

type wire struct {
	net.Conn
	line *line
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	// The words of CommandComplete; each statement under test has one of them.
	for _, tag := range []string{"INSERT 0 ", "SELECT ", "UPDATE "} {
		if bytes.Contains(p[:n], []byte(tag)) && w.line.answers.Add(-1) == 0 {
			w.Conn.Close()
			return 0, errCut
		}
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	// B is Bind: a prepared statement is executed.
	if p[0] == 'B' && w.line.requests.Add(-1) == 0 {
		w.Conn.Close()
		return 0, errCut
	}
	return w.Conn.Write(p)
}
