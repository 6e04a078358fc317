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
	// loseAnswer cuts the next connection that a finished statement's answer comes in on: the server
	// has committed, and the client does not know.
	loseAnswer atomic.Bool
	// loseRequest cuts the next connection that a statement goes out on, before the server sees it.
	loseRequest atomic.Bool
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
	// C is the first byte of CommandComplete; the words are those of the statements under test.
	if finished := bytes.Contains(p[:n], []byte("INSERT 0 ")) || bytes.Contains(p[:n], []byte("SELECT ")) ||
		bytes.Contains(p[:n], []byte("UPDATE ")); finished && w.line.loseAnswer.CompareAndSwap(true, false) {
		w.Conn.Close()
		return 0, errCut
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("pgexec")) || bytes.HasPrefix(p, []byte("B")) {
		if w.line.loseRequest.CompareAndSwap(true, false) {
			w.Conn.Close()
			return 0, errCut
		}
	}
	return w.Conn.Write(p)
}
