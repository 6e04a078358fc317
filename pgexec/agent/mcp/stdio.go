package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// line is a connection to a process: a JSON-RPC message a line, both ways. Other
// than the SDK's it lets a caller go while a process reads nothing, passes over
// lines that are no messages, and survives an answer that is too large.
type line struct {
	in    io.WriteCloser // the process's stdin
	out   io.ReadCloser  // its stdout
	limit int
	// strayFunc hears of a line that is no message.
	strayFunc func(text string)

	reader *bufio.Reader
	writes chan write
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	trips map[jsonrpc.ID]*trip
}

// write is a message on its way to the process.
type write struct {
	data []byte
	trip *trip
	done chan error // one place, so that nobody has to wait for it
}

func newLine(in io.WriteCloser, out io.ReadCloser, limit int, strayFunc func(string)) *line {
	return &line{
		in: in, out: out, limit: limit, strayFunc: strayFunc,
		reader: bufio.NewReaderSize(out, 64<<10),
		writes: make(chan write),
		closed: make(chan struct{}),
		trips:  map[jsonrpc.ID]*trip{},
	}
}

// Connect makes the line a transport of the SDK, for one session.
func (l *line) Connect(context.Context) (sdk.Connection, error) {
	go l.send()
	return l, nil
}

// SessionID is empty: the process is the session.
func (l *line) SessionID() string { return "" }

// send writes one message after another, each as a whole. It ends with the line:
// closing stdin ends a write that the process does not read.
func (l *line) send() {
	for {
		select {
		case <-l.closed:
			return
		case w := <-l.writes:
			w.trip.note(func(t *trip) { t.sent = true })
			n, err := l.in.Write(w.data)
			if err != nil && n == 0 {
				w.trip.note(func(t *trip) { t.sent = false })
			}
			w.done <- err
		}
	}
}

// Write sends a message of the SDK.
func (l *line) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	w := write{data: append(data, '\n'), done: make(chan error, 1)}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		w.trip = tripOf(ctx)
		w.trip.leaves(fmt.Append(nil, req.ID.Raw()))
		l.expect(req.ID, w.trip)
	}
	select {
	case l.writes <- w:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return io.ErrClosedPipe
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *line) expect(id jsonrpc.ID, t *trip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips[id] = t
}

// answered returns the trip of an answer.
func (l *line) answered(id jsonrpc.ID) *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.trips[id]
	delete(l.trips, id)
	return t
}

// Read returns the next message of the process.
func (l *line) Read(context.Context) (jsonrpc.Message, error) {
	for {
		data, err := l.next()
		var large *largeError
		if errors.As(err, &large) && large.id.IsValid() {
			l.answered(large.id).note(func(t *trip) { t.fault = ErrTooLarge })
			return &jsonrpc.Response{ID: large.id, Error: ErrTooLarge}, nil
		}
		if err != nil {
			return nil, err
		}
		msg, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			l.strayFunc(string(data))
			continue
		}
		if resp, ok := msg.(*jsonrpc.Response); ok {
			l.answered(resp.ID).note(func(t *trip) { t.answer(resp) })
		}
		return msg, nil
	}
}

func (t *trip) answer(resp *jsonrpc.Response) {
	var wire *jsonrpc.Error
	if errors.As(resp.Error, &wire) {
		t.rpc = &RPCError{Code: wire.Code, Message: wire.Message, Data: wire.Data}
		return
	}
	t.result = resp.Result
}

// next returns the next line that is not empty.
func (l *line) next() ([]byte, error) {
	for {
		data, err := l.readLine()
		if err != nil {
			return nil, err
		}
		if data = bytes.TrimSpace(data); len(data) > 0 {
			return data, nil
		}
	}
}

func (l *line) readLine() ([]byte, error) {
	var data []byte
	for {
		part, err := l.reader.ReadSlice('\n')
		if len(data)+len(part) > l.limit {
			return nil, l.skip(append(data, part...), err)
		}
		data = append(data, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return data, err
		}
	}
}

// skip reads the rest of a line that is too large, and finds out whose answer it is.
func (l *line) skip(begin []byte, err error) error {
	tail := begin
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = l.reader.ReadSlice('\n')
		tail = append(append([]byte(nil), tail[max(0, len(tail)-edge):]...), part...)
	}
	if err != nil {
		return err
	}
	return &largeError{id: edgeID(begin[:min(len(begin), edge)], bytes.TrimSpace(tail))}
}

// edge is how much of a message's beginning or end is searched for its id, in bytes.
const edge = 200

// A message begins with its id, or ends with it: all SDKs write an answer so. Being
// at the edge, it is not an id from within the result.
var (
	idFirst = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*,`)
	idLast  = regexp.MustCompile(`,\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}$`)
)

func edgeID(begin, end []byte) jsonrpc.ID {
	found := idFirst.FindSubmatch(begin)
	if found == nil {
		found = idLast.FindSubmatch(end)
	}
	if found == nil {
		return jsonrpc.ID{}
	}
	n, err := strconv.ParseInt(string(found[1]), 10, 32)
	if err != nil {
		return jsonrpc.ID{}
	}
	id, _ := jsonrpc.MakeID(float64(n)) // a number is always an id
	return id
}

// largeError is an answer over the limit.
type largeError struct{ id jsonrpc.ID }

func (e *largeError) Error() string { return ErrTooLarge.Error() }

// Close ends Read and Write.
func (l *line) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.in.Close()
		l.out.Close()
	})
	return nil
}
