package pgexectest

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

// Request is one request that a [Model] got.
type Request = fakemodel.Request

// Model is a model server that answers as a script says.
type Model struct {
	// URL is where it is. OpenAI's clients want URL + "/v1" as their base URL,
	// Anthropic's want URL.
	URL string

	server *fakemodel.Server
}

// NewModel starts a model server, which ends with the test. A script that is
// wrong fails the test. docs/testing.md describes scripts.
func NewModel(t testing.TB, script string) *Model {
	t.Helper()
	s, err := fakemodel.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	server := fakemodel.New(s, nil)
	listener := httptest.NewServer(server)
	t.Cleanup(func() {
		listener.CloseClientConnections() // replies may stall on purpose
		listener.Close()
	})
	return &Model{URL: listener.URL, server: server}
}

// Requests returns what the model was asked so far, the oldest first.
func (m *Model) Requests() []Request { return m.server.Requests() }
