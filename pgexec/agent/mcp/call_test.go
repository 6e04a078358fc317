package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestCall_AFailureOfTheToolIsAResult(t *testing.T) {
	t.Parallel()
	forEachVariant(t, func(t *testing.T, b *bundle, _ *remote, _ func()) {
		if got := b.text(t, "echo", toolArgs{Text: "hi"}); got != "hi" {
			t.Errorf("echo returned %q", got)
		}
		res, err := b.call(t, "fail", toolArgs{})
		if err != nil || !res.IsError || res.Parts[0].Text != "no such city" {
			t.Errorf("a failed tool returned %+v, %v", res, err)
		}
	})
}

func TestCall_AJSONRPCErrorIsAnError(t *testing.T) {
	t.Parallel()
	forEachVariant(t, func(t *testing.T, b *bundle, _ *remote, _ func()) {
		e := b.failure(t, "refuse", toolArgs{Text: "thanks"})
		var rpc *RPCError
		if !errors.As(e, &rpc) || rpc.Code != -32000 || rpc.Message != "not today, thanks" || e.Permanent || !e.MayHaveRun {
			t.Errorf("refused with %+v", e)
		}
		if e := b.failure(t, "nonesuch", toolArgs{}); !e.Permanent || e.MayHaveRun || e.Tool != "nonesuch" {
			t.Errorf("an unknown tool is %+v", e)
		}
		if got := b.text(t, "echo", toolArgs{Text: "on"}); got != "on" {
			t.Errorf("afterwards echo returned %q", got)
		}
	})
}

func TestCall_ARestartedHTTPServerGetsTheCallOnce(t *testing.T) {
	t.Parallel()
	forEachVariant(t, func(t *testing.T, b *bundle, _ *remote, restart func()) {
		file := tempFile(t)
		b.text(t, "count", toolArgs{File: file})
		restart()
		b.text(t, "count", toolArgs{File: file})
		if got := marks(file); len(got) != 2 {
			t.Errorf("two calls ran %d times", len(got))
		}
	})
}

func TestCall_ASessionIsSharedAndKept(t *testing.T) {
	t.Parallel()
	b, r := httpBundle(t, variants["sessions"](), nil)
	done := make(chan string)
	for i := range 5 {
		go func() {
			res, err := b.call(t, "echo", toolArgs{Text: fmt.Sprint(i)})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- res.Parts[0].Text
		}()
	}
	seen := map[string]bool{}
	for range 5 {
		seen[<-done] = true
	}
	if len(seen) != 5 || len(r.sessions()) != 1 {
		t.Errorf("five calls returned %v over %d sessions", seen, len(r.sessions()))
	}
}

func TestCall_AnIdleSessionEnds(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", func(p *Pool) { p.limits.idle = time.Millisecond })
	pid := b.text(t, "pid", toolArgs{})
	eventually(t, "the idle process is gone", func() bool { return !alive(pid) })
	if again := b.text(t, "pid", toolArgs{}); again == pid {
		t.Errorf("process %s answers after its end", pid)
	}
}

func TestCall_AStatusSaysWhetherItMayHaveRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status                int
		permanent, mayHaveRun bool
	}{
		{http.StatusUnauthorized, true, false},
		{http.StatusForbidden, true, false},
		{http.StatusNotFound, true, false},
		{http.StatusTooManyRequests, false, false},
		{http.StatusInternalServerError, false, true},
		{http.StatusBadGateway, false, true},
		{http.StatusServiceUnavailable, false, true},
	} {
		t.Run(http.StatusText(tc.status), func(t *testing.T) {
			t.Parallel()
			b, r := httpBundle(t, variants["stateless"](), nil)
			b.text(t, "echo", toolArgs{})
			r.onCall(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Retry-After", "7")
				http.Error(w, "not JSON", tc.status)
				return true
			})
			e := b.failure(t, "count", toolArgs{})
			var status *StatusError
			if !errors.As(e, &status) || status.Code != tc.status || e.Permanent != tc.permanent || e.MayHaveRun != tc.mayHaveRun || e.RetryAfter != 7*time.Second {
				t.Errorf("got %+v (%v)", e, e)
			}
		})
	}
}

func TestCall_AServerThatIsNotThereDidNotRunIt(t *testing.T) {
	t.Parallel()
	b, r := httpBundle(t, variants["stateless"](), func(p *Pool) {
		// A request on a connection that is just being closed may have been read.
		p.cfg.HTTPClient.Transport.(*http.Transport).DisableKeepAlives = true
	})
	b.text(t, "echo", toolArgs{})
	r.Close()
	if e := b.failure(t, "count", toolArgs{}); e.MayHaveRun || e.Permanent || strings.Contains(e.Error(), "/mcp") || !strings.Contains(e.Error(), "refused") {
		t.Errorf("got %+v (%v)", e, e)
	}
}

// cuts are the points at which a connection may break that has taken a request.
var cuts = map[string]string{
	"before the answer":  "",
	"in the header":      "HTTP/1.1 200 OK\r\nContent-Ty",
	"before the body":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
	"in the body":        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":",
	"in an event":        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata: {\"jsonrpc\":\"2.0\",",
	"before an event":    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n",
	"after other events": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 900\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n\n",
	"not JSON":           "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 3\r\n\r\n<p>",
	"of another request": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 39\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":9999,\"result\":{}}",
}

func TestCall_ACutResponseMayHaveRun(t *testing.T) {
	t.Parallel()
	for name, begin := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachVariant(t, func(t *testing.T, b *bundle, r *remote, _ func()) {
				b.text(t, "echo", toolArgs{})
				var calls atomic.Int32
				r.onCall(func(w http.ResponseWriter, _ *http.Request) bool {
					first := calls.Add(1) == 1
					if first {
						cut(w, begin)
					}
					return first
				})
				if e := b.failure(t, "count", toolArgs{}); !e.MayHaveRun || e.Permanent {
					t.Errorf("got %+v (%v)", e, e)
				}
				if got := b.text(t, "echo", toolArgs{Text: "on"}); got != "on" {
					t.Errorf("afterwards echo returned %q", got)
				}
			})
		})
	}
}

func TestConnect_ABreakAtAnyStepRunsNothing(t *testing.T) {
	t.Parallel()
	forEachVariant(t, func(t *testing.T, b *bundle, r *remote, restart func()) {
		for _, method := range []string{"server/discover", "initialize", "notifications/initialized", "tools/list"} {
			for name, begin := range cuts {
				restart()
				b.retireAll()
				r.once(method, func(w http.ResponseWriter) { cut(w, begin) })
				if _, err := b.Tools(t.Context(), b.server); err != nil && asError(t, nil, err).MayHaveRun {
					t.Errorf("%s broken %s: %v", method, name, err)
				}
				if got := b.text(t, "echo", toolArgs{Text: "on"}); got != "on" {
					t.Errorf("%s broken %s: afterwards echo returned %q", method, name, got)
				}
			}
		}
	})
}

func TestConnect_AServerOutOfReachIsNotTakenForAnOldOne(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w http.ResponseWriter){
		"cut":     func(w http.ResponseWriter) { cut(w, "") },
		"gateway": func(w http.ResponseWriter) { http.Error(w, "starting", http.StatusBadGateway) },
	} {
		b, r := httpBundle(t, variants["stateless"](), nil)
		r.once("server/discover", fault)
		if e := b.failure(t, "ask", toolArgs{}); e.MayHaveRun || e.Permanent {
			t.Errorf("%s: %v", name, e)
		}
		if res, err := b.call(t, "ask", toolArgs{}); err != nil || res.Needs == nil {
			t.Errorf("%s: afterwards %+v, %v", name, res, err)
		}
	}
}

func TestCall_ACutResponseEndsNoOtherCall(t *testing.T) {
	t.Parallel()
	forEachVariant(t, func(t *testing.T, b *bundle, r *remote, _ func()) {
		for _, begin := range cuts {
			file := tempFile(t)
			other := blocked(t, b, file)
			r.onCall(func(w http.ResponseWriter, _ *http.Request) bool {
				cut(w, begin)
				return true
			})
			_ = b.failure(t, "echo", toolArgs{})
			r.onCall(func(http.ResponseWriter, *http.Request) bool { return false })
			release(file)
			if err := <-other; err != nil {
				t.Errorf("the other call: %v", err)
			}
		}
	})
}

// blocked makes a call that ends when its file is released.
func blocked(t *testing.T, b *bundle, file string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := b.call(t, "block", toolArgs{File: file})
		done <- err
	}()
	eventually(t, "the call has begun", func() bool { return len(marks(file)) > 0 })
	return done
}

func TestCall_ACancelledCallEndsAndOthersGoOn(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, b *bundle) {
		other, mine := tempFile(t), tempFile(t)
		done := blocked(t, b, other)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			eventually(t, "my call has begun", func() bool { return len(marks(mine)) > 0 })
			cancel(errGone)
		}()
		res, err := b.Call(ctx, b.server, "block", toolArgs{File: mine}.json(), nil)
		if e := asError(t, res, err); !errors.Is(e, errGone) || !e.MayHaveRun || e.Permanent {
			t.Errorf("the cancelled call: %+v", e)
		}
		if got := b.text(t, "echo", toolArgs{Text: "on"}); got != "on" {
			t.Errorf("echo on the next session returned %q", got)
		}
		release(other)
		if err := <-done; err != nil {
			t.Errorf("the other call: %v", err)
		}
	}
	forEachVariant(t, func(t *testing.T, b *bundle, _ *remote, _ func()) { check(t, b) })
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		check(t, stdioBundle(t, "sdk", nil))
	})
}

func TestCall_ACallCancelledBeforehandDidNotRun(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	res, err := b.Call(ctx, b.server, "pid", nil, nil)
	if e := asError(t, res, err); !errors.Is(e, errGone) || e.MayHaveRun {
		t.Errorf("got %+v", e)
	}
	b.text(t, "pid", toolArgs{})
}

func TestCall_ATooLargeResultEndsNoOtherCall(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, b *bundle) {
		file := tempFile(t)
		other := blocked(t, b, file)
		if e := b.failure(t, "big", toolArgs{Bytes: 300_000}); !errors.Is(e, ErrTooLarge) || !e.Permanent || !e.MayHaveRun {
			t.Errorf("got %+v (%v)", e, e)
		}
		if got := b.text(t, "big", toolArgs{Bytes: 100_000}); len(got) != 100_000 {
			t.Errorf("a result within the limit has %d bytes", len(got))
		}
		release(file)
		if err := <-other; err != nil {
			t.Errorf("the other call: %v", err)
		}
	}
	small := func(p *Pool) { p.limits.result = 200_000 }
	for name, handler := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := httpBundle(t, handler(), small)
			check(t, b)
		})
	}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		check(t, stdioBundle(t, "sdk", small))
	})
}

func TestCall_ResultsComeByteForByte(t *testing.T) {
	t.Parallel()
	const structured = `{"id": 12345678901234567890, "x": 1e400, "s": "\ud800\u0000"}`
	const strange = `{"type":"hologram","depth": 18446744073709551617}`
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var msg struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		_ = json.NewDecoder(req.Body).Decode(&msg)
		if msg.Method != "tools/call" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, msg.ID)
			return
		}
		if !strings.Contains(string(msg.Params), "98765432109876543210") {
			http.Error(w, "the argument is another: "+string(msg.Params), http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"structuredContent\":%s,\r\ndata: \"content\":[%s,{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"iVBO\"},{\"type\":\"text\",\"text\":\"\"}]}}\r\n\r\n", msg.ID, structured, strange)
	})
	b, _ := httpBundle(t, handler, nil)
	res, err := b.Call(t.Context(), b.server, "any", json.RawMessage(`{"n": 98765432109876543210}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Structured) != structured {
		t.Errorf("structured content is %s", res.Structured)
	}
	if len(res.Parts) != 3 || res.Parts[0].Type != Other || string(res.Parts[0].Raw) != strange {
		t.Fatalf("parts are %+v", res.Parts)
	}
	if p := res.Parts[1]; p.Type != Image || p.MediaType != "image/png" || string(p.Data) != "\x89PN" {
		t.Errorf("the image is %+v", p)
	}
	if p := res.Parts[2]; p.Type != Text || p.Text != "" {
		t.Errorf("the empty text is %+v", p)
	}
}

func TestCall_AStreamIsResumedOrMayHaveRun(t *testing.T) {
	t.Parallel()
	resumable := func() http.Handler {
		return sdkHandler(&sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}, lastLegacy)
	}
	b, r := httpBundle(t, resumable(), nil)
	file := tempFile(t)
	if got := b.text(t, "drop", toolArgs{File: file}); got != "after a break" || len(marks(file)) != 1 {
		t.Errorf("got %q after %d runs", got, len(marks(file)))
	}
	// A server that restarts in mid-call knows the session no more, but had begun.
	r.mu.Lock()
	r.fault = func(w http.ResponseWriter, req *http.Request, _ string) bool {
		if req.Method == http.MethodGet {
			http.Error(w, "no such session", http.StatusNotFound)
		}
		return req.Method == http.MethodGet
	}
	r.mu.Unlock()
	if e := b.failure(t, "drop", toolArgs{File: file}); !e.MayHaveRun || e.Permanent || len(marks(file)) != 2 {
		t.Errorf("got %+v after %d runs (%v)", e, len(marks(file)), e)
	}
	if got := b.text(t, "echo", toolArgs{Text: "on"}); got != "on" {
		t.Errorf("afterwards echo returned %q", got)
	}
}

func TestCall_ArgumentsThatAreNoObjectAreRefused(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", nil)
	for _, args := range []string{`[1]`, `{"text":`, `"x"`} {
		res, err := b.Call(t.Context(), b.server, "echo", json.RawMessage(args), nil)
		if e := asError(t, res, err); !e.Permanent || e.MayHaveRun || !strings.Contains(e.Error(), args) {
			t.Errorf("%s: %v", args, e)
		}
	}
	if _, err := b.Call(t.Context(), b.server, "echo", nil, nil); err != nil {
		t.Errorf("no arguments: %v", err)
	}
}

func TestCall_ASessionForgottenWithStatus400IsMadeAgain(t *testing.T) {
	t.Parallel()
	b, r := httpBundle(t, variants["sessions"](), nil)
	b.text(t, "echo", toolArgs{})
	r.once("tools/call", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
	})
	file := tempFile(t)
	b.text(t, "count", toolArgs{File: file})
	if len(marks(file)) != 1 || len(r.sessions()) != 2 {
		t.Errorf("the call ran %d times in %d sessions", len(marks(file)), len(r.sessions()))
	}
}
