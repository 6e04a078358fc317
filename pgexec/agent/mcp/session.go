package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is a connection to one server. The pool's mutex guards calls, retired
// and idle; the rest is written before ready is closed.
type session struct {
	key    string
	server Server
	redact *strings.Replacer

	calls   int
	retired bool
	idle    *time.Timer

	ready chan struct{}
	cs    *sdk.ClientSession
	proc  *process // nil of a remote server
	said  *talk    // what the process says
	err   *Error

	// ended is closed when nobody uses the session any more.
	ended   chan struct{}
	endOnce sync.Once
}

func newSession(key string, server Server) *session {
	return &session{
		key: key, server: server, redact: server.redactor(),
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
}

func (s *session) end() { s.endOnce.Do(func() { close(s.ended) }) }

// modern says whether the session speaks a protocol in which results ask for input.
func (s *session) modern() bool {
	return s.cs.InitializeResult().ProtocolVersion >= firstModern
}

const (
	// firstModern is the first version of the protocol without initialize.
	firstModern = "2026-07-28"
	// lastLegacy is the version before.
	lastLegacy = "2025-11-25"
)

// live is a session's life: it connects, waits until the session is lost or done
// with, and cleans up.
func (p *Pool) live(s *session) {
	gone, kill := context.WithCancel(context.Background())
	defer kill()
	err := p.connect(s, gone)
	if err != nil {
		s.err = err
		close(s.ready)
		p.retire(s)
		return
	}
	close(s.ready)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		// Why it was lost is told to its calls.
		_ = s.cs.Wait()
	}()
	select {
	case <-lost:
	case <-s.exited():
		// What the process said last is still to be read. Who inherited its stdout may keep that open for ever.
		if !within(p.limits.grace, lost) {
			s.proc.closePipes()
		}
	case <-s.ended:
	}
	p.retire(s)
	<-s.ended
	if s.proc != nil {
		s.proc.stop(p.limits.grace)
	}
	defer time.AfterFunc(p.limits.grace, kill).Stop()
	// A server that does not take leave forgets the session in its own time.
	_ = s.cs.Close()
	<-lost
}

// within waits for a channel to close.
func within(d time.Duration, c <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// exited is closed when the session's process is gone; without one never.
func (s *session) exited() <-chan struct{} {
	if s.proc == nil {
		return nil
	}
	return s.proc.exited
}

// connect brings the session up. It returns nil or what went wrong.
func (p *Pool) connect(s *session, gone context.Context) *Error {
	if s.server.URL != "" {
		transport, err := p.httpTransport(s.server, gone)
		if err != nil {
			return s.failure(nil, err)
		}
		return p.open(s, transport, "", p.limits.connect)
	}
	err := p.connectProcess(s, "", p.limits.probe)
	if err != nil && err.lost && p.ctx.Err() == nil {
		// An old server may end, or say nothing, when it hears a request from after its time.
		err = p.connectProcess(s, lastLegacy, p.limits.connect)
	}
	return err
}

// connectProcess starts the session's command and opens a session with it.
func (p *Pool) connectProcess(s *session, version string, timeout time.Duration) *Error {
	said := &talk{logger: p.cfg.Logger.With("server", s.server.Name), redact: s.redact, now: time.Now}
	proc, err := startProcess(s.server, said)
	if err != nil {
		return s.failure(nil, fmt.Errorf("start the command: %w", err))
	}
	conn := newLine(proc.stdin, proc.stdout, int(p.limits.result), func(text string) { said.say("stdout", text) })
	if e := p.open(s, conn, version, timeout); e != nil {
		within(p.limits.grace, proc.exited)
		ended := proc.ended()
		proc.stop(p.limits.grace)
		e.add(cmp.Or(said.lastWords(), ended))
		return e
	}
	s.proc, s.said = proc, said
	return nil
}

// explain adds to the error of a call why its process ended: one that is about to
// end has something to say about it.
func (p *Pool) explain(s *session, e *Error) {
	if e == nil || !e.lost || s.proc == nil || !within(p.limits.grace, s.proc.exited) {
		return
	}
	within(p.limits.grace, s.proc.heard)
	e.add(s.proc.ended())
	e.add(s.said.lastWords())
}

// open begins a session of the protocol.
func (p *Pool) open(s *session, transport sdk.Transport, version string, timeout time.Duration) *Error {
	bounded, cancel := context.WithTimeoutCause(p.ctx, timeout, fmt.Errorf("no session within %s", timeout))
	defer cancel()
	ctx, t := newTrip(bounded)
	cs, err := p.client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	t.end()
	if err == nil {
		s.cs = cs
		return nil
	}
	t.abort()
	if cause := context.Cause(bounded); cause != nil {
		err = cause
	}
	e := s.failure(t, err)
	e.MayHaveRun = false
	return e
}

// failure is what callers get to see of a request that brought no result.
func (s *session) failure(t *trip, err error) *Error {
	e := &Error{Server: s.server.Name}
	switch {
	case t == nil:
		e.Err = s.plain(err)
	case t.fault != nil:
		e.Err, e.Permanent, e.MayHaveRun = t.fault, true, true
	case t.status != nil:
		s.statusFailure(e, t)
	case t.rpc != nil:
		e.Err, e.Permanent, e.MayHaveRun = s.refusal(t.rpc), t.rpc.refused(), !t.rpc.refused()
	default:
		e.Err, e.MayHaveRun, e.lost = s.plain(err), t.sent, true
	}
	return e
}

// statusFailure fills in an error of HTTP. A server that has forgotten a session
// must say 404, and many say 400.
func (s *session) statusFailure(e *Error, t *trip) {
	e.Err = t.status
	if t.rpc != nil {
		e.Err = fmt.Errorf("%w: %w", t.status, s.refusal(t.rpc))
	}
	unknown := t.status.Code == http.StatusNotFound || t.status.Code == http.StatusBadRequest
	e.lost = unknown && s.cs != nil && s.cs.ID() != ""
	e.Permanent = !t.status.temporary() && !e.lost
	// One that comes when the stream of an answer is to be resumed says nothing about the call.
	e.MayHaveRun = t.taken || !t.status.refused()
	e.RetryAfter = t.status.RetryAfter
}

// refusal is a server's error without secrets.
func (s *session) refusal(rpc *RPCError) *RPCError {
	return &RPCError{
		Code:    rpc.Code,
		Message: s.redact.Replace(rpc.Message),
		Data:    json.RawMessage(s.redact.Replace(string(rpc.Data))),
	}
}

// plain is an error without URL and secrets.
func (s *session) plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &redactedError{text: clip(s.redact.Replace(err.Error())), err: err}
}
