package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxResultBytes bounds the answer to a call, in bytes as the server sends it.
const MaxResultBytes = 64 << 20

// maxRefusalBytes bounds what is read of an answer whose status is no success.
const maxRefusalBytes = 1 << 20

// carrier takes a session's requests to its server. It keeps one request's
// misfortune from ending the session, which the SDK would do: an answer that is
// broken, too large or a bare status becomes an error of that request alone.
type carrier struct {
	base   http.RoundTripper
	server Server
	origin *url.URL
	// gone ends all requests of the session.
	gone  context.Context
	limit int64
}

// httpTransport returns the SDK's transport for a remote server.
func (p *Pool) httpTransport(server Server, gone context.Context) (sdk.Transport, error) {
	origin, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	client := *cmp.Or(server.HTTPClient, p.cfg.HTTPClient)
	base := client.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	client.Transport = &carrier{base: base, server: server, origin: origin, gone: gone, limit: p.limits.result}
	return &sdk.StreamableClientTransport{
		Endpoint:   server.URL,
		HTTPClient: &client,
		// What a server sends unasked is of no use here.
		DisableStandaloneSSE: true,
		// The carrier bounds the whole answer.
		MaxEventSize: -1,
	}, nil
}

// RoundTrip sends one request of the SDK.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	t := tripOf(req.Context())
	id := callID(req)
	if id != nil {
		t.leaves(id)
	}
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(c.gone, cancel)
	ctx, left := traced(ctx)
	resp, err := c.base.RoundTrip(c.withHeaders(req.Clone(ctx)))
	sent := left()
	t.note(func(t *trip) { t.sent = t.sent || sent || err == nil })
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &answer{body: resp.Body, trip: t, left: c.limit, release: func() { stop(); cancel() }}
	if err := c.look(t, id != nil, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// callID is the id of the request that the SDK posts, or nil.
func callID(req *http.Request) []byte {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	var m message
	if json.NewDecoder(body).Decode(&m) != nil || m.Method == nil {
		return nil
	}
	return m.ID
}

// withHeaders adds the server's headers, unless a redirect leads elsewhere.
func (c *carrier) withHeaders(req *http.Request) *http.Request {
	if req.URL.Scheme == c.origin.Scheme && req.URL.Host == c.origin.Host {
		for name, value := range c.server.Headers {
			req.Header.Set(name, value)
		}
	}
	return req
}

// look reads what can be read of an answer before the SDK gets it.
func (c *carrier) look(t *trip, call bool, resp *http.Response) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= http.StatusBadRequest {
		return refusal(t, resp)
	}
	if call {
		t.note(func(t *trip) { t.taken = true })
	}
	switch {
	case media == "application/json" && call:
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if t != nil && !t.arrived(body) {
			return errors.New("the answer is not one to this request")
		}
		replaceBody(resp, body)
	case media == "text/event-stream":
		resp.Body.(*answer).keep = t != nil
	}
	return nil
}

// refusal passes on the JSON-RPC error of an answer without success, and makes any other an error.
func refusal(t *trip, resp *http.Response) error {
	// A broken refusal is still one.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBytes))
	if t != nil && t.arrived(body) {
		replaceBody(resp, body)
		return nil
	}
	status := &StatusError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	t.note(func(t *trip) { t.status = status })
	if t != nil && resp.Request.Method == http.MethodGet {
		// The stream of an answer was to be resumed: there is no use in trying again.
		t.abort()
	}
	return status
}

// replaceBody gives the SDK a body that has been read.
func replaceBody(resp *http.Response, body []byte) {
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
}

// retryAfter reads a header of seconds or a date. An hour is the most that is believed.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(v, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), time.Hour)
}

// answer is the body of a response: bounded, and of a stream kept as it came.
type answer struct {
	body    io.ReadCloser
	trip    *trip
	left    int64
	release func()
	keep    bool
	kept    []byte
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if a.left -= int64(n); a.left < 0 {
		a.kept = nil
		a.trip.note(func(t *trip) { t.fault = ErrTooLarge; t.abort() })
		return 0, ErrTooLarge
	}
	if a.keep {
		a.add(p[:n], err != nil)
	}
	return n, err
}

// add keeps what came and notes the events that are complete, before the SDK sees
// them: once it has seen the answer, the trip ends.
func (a *answer) add(p []byte, last bool) {
	// An event ends with an empty line, of which up to three bytes came before.
	from := max(0, len(a.kept)-3)
	a.kept = append(a.kept, p...)
	fresh := a.kept[from:]
	end := max(bytes.LastIndex(fresh, []byte("\n\n")), bytes.LastIndex(fresh, []byte("\n\r\n")))
	if end += from; last {
		end = len(a.kept)
	}
	if end < from {
		return
	}
	for _, data := range eventData(a.kept[:end]) {
		a.trip.arrived(data)
	}
	a.kept = append([]byte(nil), a.kept[end:]...)
}

func (a *answer) Close() error {
	err := a.body.Close()
	a.release()
	return err
}
