package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptrace"
	"sync"
)

// trip is what one request of this package meets on its way: whether it left, and
// the answer as the server wrote it. The SDK knows neither: it decodes results
// into its own types, which lose what they do not know and round large numbers,
// and fails without saying where. Transports find the trip in the context.
type trip struct {
	// abort ends the request, where the SDK would try again in vain.
	abort context.CancelFunc

	mu   sync.Mutex
	over bool
	// id is the request's, as JSON.
	id   []byte
	sent bool
	// taken says that the server began an answer that is no refusal.
	taken  bool
	result json.RawMessage
	rpc    *RPCError
	status *StatusError
	// probe is why server/discover failed.
	probe error
	// fault is ErrTooLarge, or why a transport gave up.
	fault error
}

type tripKey struct{}

// newTrip returns a trip that must be ended, and the context of its request.
func newTrip(ctx context.Context) (context.Context, *trip) {
	ctx, cancel := context.WithCancel(ctx)
	t := &trip{abort: cancel}
	return context.WithValue(ctx, tripKey{}, t), t
}

// tripOf is the trip of a request's context, or nil. A session keeps the context
// it was made with and sends other things with it later: those have no trip.
func tripOf(ctx context.Context) *trip {
	t, _ := ctx.Value(tripKey{}).(*trip)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	return t
}

// note changes a trip, unless it is nil or over.
func (t *trip) note(f func(*trip)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		f(t)
	}
}

// end closes the trip: from now on it does not change and may be read without lock.
func (t *trip) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// leaves notes what is sent, and forgets what came before it.
func (t *trip) leaves(id []byte) {
	t.note(func(t *trip) { t.id, t.taken, t.result, t.rpc, t.status = id, false, nil, nil, nil })
}

// unheard returns why a server has said nothing to server/discover, or nil.
func (t *trip) unheard() (why error) {
	t.note(func(t *trip) {
		if !t.taken && t.rpc == nil && (t.status == nil || t.status.ofGateway()) {
			why = t.probe
		}
	})
	return why
}

// message is a request or an answer in JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *RPCError       `json:"error"`
}

// arrived notes an answer to the request if data is one. It returns whether the
// SDK will know it as such too, which an error without id is lost on.
func (t *trip) arrived(data []byte) (addressed bool) {
	var m message
	if json.Unmarshal(data, &m) != nil || m.Method != nil || m.Result == nil && m.Error == nil {
		return false
	}
	t.note(func(t *trip) {
		addressed = bytes.Equal(m.ID, t.id)
		if addressed || m.Error != nil && (len(m.ID) == 0 || string(m.ID) == "null") {
			t.result, t.rpc = m.Result, m.Error
		}
	})
	return addressed
}

// traced returns a context that notices whether a request leaves, and what asks for
// it. A transport that did not even look for a connection is not net/http's, and
// may have sent the request in its own way.
func traced(ctx context.Context) (context.Context, func() bool) {
	var mu sync.Mutex
	var asked, wrote bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { mu.Lock(); asked = true; mu.Unlock() },
		WroteHeaders: func() { mu.Lock(); wrote = true; mu.Unlock() },
	})
	return ctx, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return wrote || !asked
	}
}

// eventData returns the data of each server-sent event in a piece of a stream.
func eventData(piece []byte) [][]byte {
	var events [][]byte
	var data []byte
	for line := range bytes.Lines(piece) {
		line = bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, '\n'), bytes.TrimSpace(rest)...)
		}
		if len(line) == 0 && len(data) > 0 {
			events, data = append(events, data), nil
		}
	}
	if len(data) > 0 {
		events = append(events, data)
	}
	return events
}
