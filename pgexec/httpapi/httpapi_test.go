package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/httpapi"
)

var states = []pgexec.State{pgexec.StateStarting, pgexec.StateReady, pgexec.StateDraining, pgexec.StateStopped}

func get(t *testing.T, state pgexec.State, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	h := httpapi.NewHandler(httpapi.Config{StateFunc: func() pgexec.State { return state }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestHandler_ReadyOnlyWhileReady(t *testing.T) {
	t.Parallel()
	for _, state := range states {
		w := get(t, state, "GET", "/readyz")
		want := http.StatusServiceUnavailable
		if state == pgexec.StateReady {
			want = http.StatusOK
		}
		if w.Code != want || !strings.Contains(w.Body.String(), state.String()) {
			t.Errorf("%s: got %d %q, want %d and the state's name", state, w.Code, w.Body, want)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", state, got)
		}
	}
}

func TestHandler_HealthyInEveryState(t *testing.T) {
	t.Parallel()
	for _, state := range states {
		if w := get(t, state, "GET", "/healthz"); w.Code != http.StatusOK {
			t.Errorf("%s: got %d", state, w.Code)
		}
	}
}

func TestHandler_AnswersNothingElse(t *testing.T) {
	t.Parallel()
	for _, request := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/readyz", http.StatusMethodNotAllowed},
		{"HEAD", "/readyz", http.StatusOK},
		{"GET", "/", http.StatusNotFound},
		{"GET", "/healthz/more", http.StatusNotFound},
	} {
		if w := get(t, pgexec.StateReady, request.method, request.path); w.Code != request.want {
			t.Errorf("%s %s: got %d, want %d", request.method, request.path, w.Code, request.want)
		}
	}
}
