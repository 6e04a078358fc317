package llm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// answer is what a model server sends back for one request.
type answer struct {
	status int // 0 is 200
	header map[string]string
	body   string
	chunk  int // bytes at a time, 0 is all at once
}

// model is a server that gives its answers one after the other, the last one for
// ever, and keeps what it was asked.
type model struct {
	t       *testing.T
	url     string
	answers []answer

	mu      sync.Mutex
	bodies  [][]byte
	headers []http.Header
	paths   []string
}

func newModel(t *testing.T, answers ...answer) *model {
	t.Helper()
	m := &model{t: t, answers: answers}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	m.url = srv.URL
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Error(err)
	}
	m.mu.Lock()
	a := m.answers[min(len(m.bodies), len(m.answers)-1)]
	m.bodies = append(m.bodies, body)
	m.headers = append(m.headers, r.Header)
	m.paths = append(m.paths, r.URL.Path)
	m.mu.Unlock()

	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	send(w, a.body, a.chunk)
}

// send writes a body in chunks of some bytes.
func send(w http.ResponseWriter, body string, chunk int) {
	if chunk == 0 {
		chunk = len(body) + 1
	}
	for len(body) > 0 {
		n := min(chunk, len(body))
		_, _ = io.WriteString(w, body[:n]) // a client that went away is none of its business
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		body = body[n:]
	}
}

// client asks this server.
func (m *model) client(p llm.Provider, change ...func(*llm.Config)) *llm.Client {
	m.t.Helper()
	c := llm.Config{Provider: p, BaseURL: m.url, Model: "test-model", APIKey: testKey}
	for _, f := range change {
		f(&c)
	}
	client, err := llm.New(c)
	if err != nil {
		m.t.Fatal(err)
	}
	return client
}

const testKey = "test-key-0123456789"

// hello is the smallest request.
func hello() *llm.Request { return &llm.Request{Messages: []llm.Message{said("Hello")}} }

func said(text string) llm.Message {
	return llm.Message{Role: llm.RoleUser, Parts: []llm.Part{{Text: text}}}
}

func result(id, text string) llm.Message {
	return llm.Message{Role: llm.RoleTool, CallID: id, Parts: []llm.Part{{Text: text}}}
}
