package fakemodel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The APIs, as scripts and records name them.
const (
	apiOpenAI    = "openai"
	apiAnthropic = "anthropic"
)

// maxBody bounds a request, as the real APIs do.
const maxBody = 32 << 20

// Opts are the optional parts of a server.
type Opts struct {
	// Logger gets one line for each request. Defaults to none.
	Logger *slog.Logger
}

// Server answers as its script says and keeps what it was asked. It is an
// [http.Handler] for
//
//	POST /v1/chat/completions and /chat/completions, as OpenAI's API
//	POST /v1/messages, as Anthropic's API
//	GET  /requests, which gives [Server.Requests] as JSON
//
// Its methods may be called from several goroutines.
type Server struct {
	script *Script
	log    *slog.Logger
	mux    *http.ServeMux

	mu       sync.Mutex
	requests []Request
	fired    []int          // how often each rule did
	attempts map[string]int // how often each request was asked, by digest
}

// Request is one request for a reply, as the server got it.
type Request struct {
	// Number counts from 1, in the order in which requests came.
	Number int `json:"number"`
	// API is "openai" or "anthropic".
	API   string `json:"api"`
	Model string `json:"model"`
	// Stream reports whether a stream was asked for.
	Stream bool `json:"stream"`
	// Turn counts the assistant messages in the conversation.
	Turn int `json:"turn"`
	// Attempt counts how often these very bytes were asked, this time included.
	Attempt int `json:"attempt"`
	// Rule names the rule that answered; empty if none did.
	Rule string `json:"rule,omitempty"`
	// Status is the answer's. Problem says why the server itself refused the
	// request: it is not valid, or no rule fits.
	Status  int    `json:"status"`
	Problem string `json:"problem,omitempty"`
	// Header has no secrets: the values of all headers but the usual ones are replaced.
	Header http.Header `json:"header"`
	// Body is the request's, byte for byte.
	Body string `json:"body"`
}

// New returns a server that follows the script, with counters of its own.
func New(s *Script, opts *Opts) *Server {
	if opts == nil {
		opts = &Opts{}
	}
	srv := &Server{
		script:   s,
		log:      opts.Logger,
		mux:      http.NewServeMux(),
		fired:    make([]int, len(s.file.Rules)),
		attempts: make(map[string]int),
	}
	if srv.log == nil {
		srv.log = slog.New(slog.DiscardHandler)
	}
	openai := func(w http.ResponseWriter, r *http.Request) { srv.answer(w, r, apiOpenAI) }
	srv.mux.HandleFunc("POST /v1/chat/completions", openai)
	srv.mux.HandleFunc("POST /chat/completions", openai)
	srv.mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { srv.answer(w, r, apiAnthropic) })
	srv.mux.HandleFunc("GET /requests", srv.list)
	return srv
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns what the server was asked so far, the oldest first. It keeps
// all of it until it is gone itself.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	requests := s.Requests()
	if requests == nil {
		requests = []Request{}
	}
	_, _ = w.Write(append(mustEncode(requests), '\n')) // a client that has gone needs no answer
}

// answer gives what the script says to one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, api string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return // the client has gone
	}
	c, refused := s.parse(r, api, body)
	if tooLarge != nil {
		refused = &problem{failure: failure{Status: http.StatusRequestEntityTooLarge}}
	}
	a := s.choose(r, c, body, refused)
	w.Header().Set("X-Request-Id", a.requestID)
	w.Header().Set("Request-Id", a.requestID)
	if !pass(r.Context(), a.latency) {
		return
	}
	switch t := a.turn; {
	case a.problem != nil:
		a.problem.write(w, api, a.requestID)
	case api == apiOpenAI && c.stream:
		t.stream(r.Context(), w, t.openaiEvents(), a.requestID)
	case api == apiOpenAI:
		t.document(r.Context(), w, t.openai(), a.requestID)
	case c.stream:
		t.stream(r.Context(), w, t.anthropicEvents(), a.requestID)
	default:
		t.document(r.Context(), w, t.anthropic(), a.requestID)
	}
}

func (s *Server) parse(r *http.Request, api string, body []byte) (c *conversation, refused *problem) {
	if api == apiAnthropic {
		c, refused = parseAnthropic(r.Header, body)
	} else {
		c, refused = parseOpenAI(body)
	}
	if key := s.script.file.APIKey; key != "" && keyOf(r.Header) != key {
		refused = &problem{failure: failure{Status: http.StatusUnauthorized}}
	}
	return c, refused
}

// keyOf is the request's API key, in either API's header.
func keyOf(h http.Header) string {
	return first(h.Get("X-Api-Key"), strings.TrimPrefix(h.Get("Authorization"), "Bearer "))
}

// answer is what a request gets: a turn, or else a problem.
type answer struct {
	requestID string
	latency   time.Duration
	turn      *turn
	problem   *problem
}

// choose finds the rule for a request, unless it is refused already, counts it
// and records the request.
func (s *Server) choose(r *http.Request, c *conversation, body []byte, refused *problem) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[c.digest]++
	c.attempt = s.attempts[c.digest]
	rec := Request{
		Number: len(s.requests) + 1, API: c.api, Model: c.model, Stream: c.stream, Turn: c.turn, Attempt: c.attempt,
		Status: http.StatusOK, Header: withoutKeys(r.Header), Body: string(body),
	}
	var chosen *rule
	if refused == nil {
		chosen, refused = s.match(c)
	}
	out := answer{requestID: fmt.Sprintf("req_%d", rec.Number), problem: refused}
	if chosen != nil {
		rec.Rule, out.latency = chosen.label, time.Duration(chosen.Latency)
		out.turn, out.problem = chosen.answer(c)
	}
	if p := out.problem; p != nil {
		rec.Status = p.Status
		if chosen == nil || chosen.Error == nil { // the script did not ask for it
			rec.Problem = first(p.Message, usualFor(p.Status).message)
		}
	}
	s.requests = append(s.requests, rec)
	s.log.Info("request", "number", rec.Number, "api", rec.API, "model", rec.Model, "turn", rec.Turn,
		"attempt", rec.Attempt, "rule", rec.Rule, "status", rec.Status, "problem", rec.Problem)
	return out
}

// match finds the first rule that fits and has not fired as often as it may. An
// error says for each rule why it is not the one.
func (s *Server) match(c *conversation) (*rule, *problem) {
	var why []string
	for i := range s.script.file.Rules {
		r := &s.script.file.Rules[i]
		mismatch := r.When.mismatch(c)
		if mismatch == "" && r.Times > 0 && s.fired[i] >= r.Times {
			mismatch = fmt.Sprintf("it fired %d times", s.fired[i])
		}
		if mismatch == "" {
			s.fired[i]++
			return r, nil
		}
		why = append(why, r.label+": "+mismatch)
	}
	return nil, invalid("fakemodel: no rule fits this request (%s). %s. Add a rule, or a last one without `when`.", c.summary(), strings.Join(why, "; "))
}

// shownHeaders are kept as they came, and so are those of the SDKs themselves, which
// begin with X-Stainless-. Any other may hold a secret: an agent's definition says
// in which header its key is sent.
var shownHeaders = []string{
	"Accept", "Accept-Encoding", "Anthropic-Beta", "Anthropic-Version", "Content-Length", "Content-Type", "Idempotency-Key", "User-Agent",
}

// withoutKeys is a request's header as it may be kept.
func withoutKeys(h http.Header) http.Header {
	h = h.Clone()
	for name := range h {
		if !slices.Contains(shownHeaders, name) && !strings.HasPrefix(name, "X-Stainless-") {
			h.Set(name, "(not kept)")
		}
	}
	return h
}
