// Package httpapi is what a replica answers over HTTP.
//
//	GET /healthz  200 while the process lives
//	GET /readyz   200 while the replica takes runs; else 503 with its state
//
// # Guarantees
//
//   - A replica that starts, drains or has stopped is not ready:
//     TestHandler_ReadyOnlyWhileReady.
//   - It lives whatever its state: TestHandler_HealthyInEveryState.
//
// The package is internal to this module's program: no compatibility of its Go
// API is promised, only that of the paths.
package httpapi

import (
	"fmt"
	"io"
	"net/http"

	"github.com/pgexec/runtime/pgexec"
)

// Config says what the handler answers from.
type Config struct {
	// StateFunc returns what the replica is doing now. Required.
	StateFunc func() pgexec.State
}

// NewHandler returns the handler of all paths.
func NewHandler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state := cfg.StateFunc()
		if state == pgexec.StateReady {
			say(w, http.StatusOK, state.String())
			return
		}
		say(w, http.StatusServiceUnavailable, fmt.Sprintf("not ready: %s", state))
	})
	return mux
}

// say answers with one line. It is never cached: a probe wants to know about now.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = io.WriteString(w, text+"\n")
}
