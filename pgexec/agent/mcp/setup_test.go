package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience bounds every wait for something that happens at once on an idle machine.
const patience = time.Minute

// errGone is the cause of a caller that leaves.
var errGone = errors.New("gone")

func poll(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		poll(t.Context())
	}
}

func release(file string) { _ = os.WriteFile(file+".go", nil, 0o600) }

// released is also a file whose test is over.
func released(file string) bool {
	_, err := os.Stat(file + ".go")
	_, gone := os.Stat(filepath.Dir(file))
	return err == nil || gone != nil
}

// marks are the lines that tools left in a file.
func marks(file string) []string {
	data, _ := os.ReadFile(file)
	return strings.Fields(string(data))
}

func tempFile(t *testing.T) string { return filepath.Join(t.TempDir(), "marks") }

// syncBuffer is a log that is written and read at the same time.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bundle is a pool with a server.
type bundle struct {
	*Pool
	server Server
	log    *syncBuffer
}

func (b *bundle) call(t *testing.T, tool string, args toolArgs) (*Result, error) {
	return b.Call(t.Context(), b.server, tool, args.json(), nil)
}

// text calls a tool that returns text.
func (b *bundle) text(t *testing.T, tool string, args toolArgs) string {
	t.Helper()
	res, err := b.call(t, tool, args)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Parts) != 1 || res.Parts[0].Type != Text || res.IsError {
		t.Fatalf("%s returned %+v", tool, res)
	}
	return res.Parts[0].Text
}

// failure calls a tool that brings no result.
func (b *bundle) failure(t *testing.T, tool string, args toolArgs) *Error {
	t.Helper()
	res, err := b.call(t, tool, args)
	return asError(t, res, err)
}

func asError(t *testing.T, res *Result, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %+v and %v, want an *Error", res, err)
	}
	return e
}

// retireAll has the next call make its session anew.
func (b *bundle) retireAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.Pool.sessions {
		b.retireLocked(s)
	}
}

func newBundle(t *testing.T, server Server, adjust func(*Pool)) *bundle {
	t.Helper()
	out := &syncBuffer{}
	stdio := map[string]Server{}
	if len(server.Command) > 0 {
		stdio[server.Name] = server
	}
	p := NewPool(Config{Stdio: stdio, HTTPClient: &http.Client{Transport: &http.Transport{}}, Logger: slog.New(slog.NewTextHandler(out, nil))})
	p.limits.grace = time.Second
	if adjust != nil {
		adjust(p)
	}
	t.Cleanup(func() {
		p.Close()
		p.cfg.HTTPClient.CloseIdleConnections()
	})
	return &bundle{Pool: p, server: server, log: out}
}

// stdioBundle has a server that is this test binary.
func stdioBundle(t *testing.T, mode string, adjust func(*Pool)) *bundle {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newBundle(t, Server{Name: "local", Command: []string{exe}, Env: []string{modeVar + "=" + mode, "TEST_KEY=sesame-4711"}}, adjust)
}

// remote is a server over HTTP with faults.
type remote struct {
	*httptest.Server

	mu      sync.Mutex
	handler http.Handler
	fault   func(w http.ResponseWriter, r *http.Request, method string) bool
	headers []http.Header
	deleted int
}

func (r *remote) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var msg struct {
		Method string `json:"method"`
	}
	_ = json.Unmarshal(body, &msg)
	r.mu.Lock()
	handler, fault := r.handler, r.fault
	r.headers = append(r.headers, req.Header.Clone())
	if req.Method == http.MethodDelete {
		r.deleted++
	}
	r.mu.Unlock()
	if fault == nil || !fault(w, req, msg.Method) {
		handler.ServeHTTP(w, req)
	}
}

// restart forgets all sessions, as a new process does.
func (r *remote) restart(handler http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler = handler
}

// onCall lets a fault take each tools/call; the fault returns whether it did.
func (r *remote) onCall(fault func(w http.ResponseWriter, req *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = func(w http.ResponseWriter, req *http.Request, method string) bool {
		return method == "tools/call" && fault(w, req)
	}
}

// once lets a fault take the first request of a method.
func (r *remote) once(method string, fault func(w http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var done atomic.Bool
	r.fault = func(w http.ResponseWriter, _ *http.Request, m string) bool {
		if m != method || done.Swap(true) {
			return false
		}
		fault(w)
		return true
	}
}

func (r *remote) sessions() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]bool{}
	for _, h := range r.headers {
		if id := h.Get("Mcp-Session-Id"); id != "" {
			ids[id] = true
		}
	}
	return ids
}

// variants are the ways in which a server over HTTP may speak.
var variants = map[string]func() http.Handler{
	"stateless": func() http.Handler { return sdkHandler(&sdk.StreamableHTTPOptions{Stateless: true}) },
	"statelessJSON": func() http.Handler {
		return sdkHandler(&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	},
	"sessions":     func() http.Handler { return sdkHandler(nil, lastLegacy) },
	"sessionsJSON": func() http.Handler { return sdkHandler(&sdk.StreamableHTTPOptions{JSONResponse: true}, lastLegacy) },
}

func sdkHandler(opts *sdk.StreamableHTTPOptions, versions ...string) http.Handler {
	server := newTestServer(versions...)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts)
}

// forEachVariant runs a test with each way to speak HTTP.
func forEachVariant(t *testing.T, test func(t *testing.T, b *bundle, r *remote, restart func())) {
	for name, handler := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r := httpBundle(t, handler(), nil)
			test(t, b, r, func() { r.restart(handler()) })
		})
	}
}

func httpBundle(t *testing.T, handler http.Handler, adjust func(*Pool)) (*bundle, *remote) {
	t.Helper()
	r := &remote{handler: handler}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	b := newBundle(t, Server{Name: "far", URL: r.URL + "/mcp"}, adjust)
	return b, r
}

// cut ends a connection without an answer, or in the middle of one.
func cut(w http.ResponseWriter, begin string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, begin)
	_ = conn.(*net.TCPConn).Close()
}

// alive tells whether a process exists and is no zombie.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || syscall.Kill(n, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
