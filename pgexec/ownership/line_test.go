package ownership_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// line is the network between one replica and the server.
type line struct {
	// loseAnswer cuts the next connection whose write to the log has been
	// answered: the server has committed, and the replica does not know.
	loseAnswer atomic.Bool
	// frozen stops all traffic while it is shut.
	frozen door
	// dark swallows what the replica sends, as a lost network does.
	dark atomic.Bool

	mu    sync.Mutex
	wires []net.Conn
}

var errCut = errors.New("line is cut")

// through makes connections of cfg go through the line.
func (l *line) through(cfg *pgx.ConnConfig) {
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wires = append(l.wires, conn)
		return &wire{Conn: conn, line: l, toLog: make(map[string]bool)}, nil
	}
}

// cut ends all connections.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.wires {
		conn.Close()
	}
}

// wire is one connection. It knows from the messages that go out which
// statement's answer comes in.
type wire struct {
	net.Conn
	line *line

	mu      sync.Mutex
	toLog   map[string]bool // prepared statements that write to the log
	waiting bool            // for the answer of one of them
}

func (w *wire) Write(p []byte) (int, error) {
	w.line.frozen.pass()
	if w.line.dark.Load() {
		return len(p), nil
	}
	w.read(p)
	return w.Conn.Write(p)
}

// read follows whole messages of the extended protocol: Parse and Bind.
func (w *wire) read(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) >= 5 {
		kind, size := p[0], 1+int(binary.BigEndian.Uint32(p[1:5]))
		if size < 5 || size > len(p) {
			return // a start-up message, or one in pieces
		}
		body := p[5:size]
		p = p[size:]
		switch kind {
		case 'P': // name, statement
			name, statement, _ := bytes.Cut(body, []byte{0})
			w.toLog[string(name)] = bytes.Contains(statement, []byte("insert into pgexec.run_log"))
		case 'B': // portal, name
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			w.waiting = w.waiting || w.toLog[string(name)]
		}
	}
}

func (w *wire) Read(p []byte) (int, error) {
	w.line.frozen.pass()
	n, err := w.Conn.Read(p)
	w.line.frozen.pass()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waiting || !bytes.Contains(p[:n], []byte("Z\x00\x00\x00\x05")) { // ReadyForQuery: the transaction has ended
		return n, err
	}
	w.waiting = false
	if w.line.loseAnswer.CompareAndSwap(true, false) {
		w.Conn.Close()
		return 0, errCut
	}
	return n, err
}

// door is open until it is shut.
type door struct {
	mu     sync.Mutex
	closed chan struct{}
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed == nil {
		d.closed = make(chan struct{})
	}
}

func (d *door) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		close(d.closed)
		d.closed = nil
	}
}

// pass waits while the door is shut.
func (d *door) pass() {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed != nil {
		<-closed
	}
}
