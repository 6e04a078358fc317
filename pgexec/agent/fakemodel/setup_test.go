package fakemodel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a server on a port of its own.
type model struct {
	*fakemodel.Server
	URL string
}

func start(t *testing.T, script string) model {
	t.Helper()
	s, err := fakemodel.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	m := fakemodel.New(s, nil)
	server := httptest.NewServer(m)
	t.Cleanup(func() {
		server.CloseClientConnections() // some replies stall
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return model{m, server.URL}
}

// post sends one request as curl would.
func post(t *testing.T, url, body string, header map[string]string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// events are the data lines of a stream.
func events(stream string) []string {
	var out []string
	for line := range strings.Lines(stream) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, strings.TrimSpace(data))
		}
	}
	return out
}
