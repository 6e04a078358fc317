package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"path"
	"sync"
	"time"
)

// service stands in for the models and the tools: a local HTTP server whose
// answers take their time. Those of the models depend on the conversation alone,
// those of the tools on the request's Idempotency-Key.
type service struct {
	url    string
	addr   string
	server *http.Server
	done   chan struct{}

	mu sync.Mutex
	// calls counts the requests of each Idempotency-Key.
	calls map[string]int
}

const (
	minLatency = 200 * time.Millisecond
	maxLatency = 700 * time.Millisecond
)

func startService() (*service, error) {
	model, err := loadModel()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start service: %w", err)
	}
	s := &service{
		addr:  l.Addr().String(),
		url:   "http://" + l.Addr().String(),
		calls: make(map[string]int),
		done:  make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.Handle("/", model)
	mux.HandleFunc("/tools/", s.answer)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // ends with close
	}()
	return s, nil
}

func (s *service) close() error {
	err := s.server.Close()
	<-s.done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// reply is what a tool answers.
type reply struct {
	Answer string `json:"answer"`
	Hits   int    `json:"hits"`
}

func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.calls[key]++
	s.mu.Unlock()

	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // cannot fail
	sum := h.Sum32()
	latency := minLatency + time.Duration(sum%1000)*(maxLatency-minLatency)/1000
	if !sleep(r.Context(), latency) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// Who has gone needs no answer.
	_ = json.NewEncoder(w).Encode(reply{Answer: fmt.Sprintf("%s %06x", path.Base(r.URL.Path), sum&0xffffff), Hits: int(sum >> 24)})
}

// sleep reports whether the time has passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// counts returns how many keys and how many calls there were.
func (s *service) counts() (keys, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.calls {
		calls += n
	}
	return len(s.calls), calls
}
