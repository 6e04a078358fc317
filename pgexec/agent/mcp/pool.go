package mcp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Config configures a [Pool].
type Config struct {
	// Stdio are the servers that may be started as processes, by name. They come
	// from the replica's own configuration, never from a table.
	Stdio map[string]Server
	// HTTPClient sends every request to remote servers, those that follow a redirect
	// included, and so is where an allow-list belongs. Defaults to
	// [http.DefaultClient]. Its transport should be net/http's, wrapped or not: of
	// another one every request that failed is taken for one that may have run.
	HTTPClient *http.Client
	// Logger hears what stdio servers write to stderr. Defaults to discarding it.
	Logger *slog.Logger
	// Version is what servers are told of this client. Defaults to "dev".
	Version string
}

// limits are what a pool allows; tests make them small.
type limits struct {
	result  int64
	connect time.Duration // for a session to come up
	probe   time.Duration // for a process to answer to the newest protocol
	idle    time.Duration // for a session without calls
	grace   time.Duration // for a process to end by itself, and for a session's last request
}

// Pool keeps sessions with MCP servers: one for each server, shared by all calls,
// made by the first and made again when lost. It is safe for concurrent use.
type Pool struct {
	cfg    Config
	limits limits
	client *sdk.Client

	// ctx ends with Close.
	ctx   context.Context
	close context.CancelCauseFunc

	mu       sync.Mutex
	sessions map[string]*session
	// work counts the goroutines that connect, watch and end sessions. It is added
	// to under mu, and not after Close.
	work sync.WaitGroup
}

// NewPool returns a pool without sessions. It must be closed.
func NewPool(cfg Config) *Pool {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pool{
		cfg:      cfg,
		limits:   limits{result: MaxResultBytes, connect: time.Minute, probe: 30 * time.Second, idle: 10 * time.Minute, grace: 2 * time.Second},
		client:   newClient(cmp.Or(cfg.Version, "dev")),
		sessions: map[string]*session{},
	}
	p.ctx, p.close = context.WithCancelCause(context.Background())
	return p
}

// newClient returns what speaks the protocol. It declares that it answers requests
// for input, which are returned to the caller, and nothing else.
func newClient(version string) *sdk.Client {
	client := sdk.NewClient(&sdk.Implementation{Name: "pgexec", Version: version}, &sdk.ClientOptions{
		// The SDK's own text may hold a server's secrets.
		Logger: slog.New(slog.DiscardHandler),
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{},
		}},
		ElicitationHandler: declineElicitation,
		MultiRoundTrip:     &sdk.MultiRoundTripOptions{Disabled: true},
	})
	client.AddSendingMiddleware(beforeInitialize)
	return client
}

// methodDiscover is the first request of the newest protocol; a server that does
// not know it is asked to initialize.
const methodDiscover = "server/discover"

// beforeInitialize sees to the first request of older protocols. With them a server
// may ask in the middle of a call, where nobody can answer for days, so it is not
// told that this client could. And a server that was merely out of reach when it was
// asked for its versions is not to be taken for an old one.
func beforeInitialize(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		t := tripOf(ctx)
		if params, ok := req.GetParams().(*sdk.InitializeParams); ok {
			if err := t.unheard(); err != nil {
				return nil, err
			}
			params.Capabilities.Elicitation = nil
		}
		res, err := next(ctx, method, req)
		if method == methodDiscover {
			t.note(func(t *trip) { t.probe = err })
		}
		return res, err
	}
}

func declineElicitation(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return nil, errors.New("this client asks no person in the middle of a call: use the results of protocol 2026-07-28 that require input")
}

// Close ends all calls with [ErrClosed], and all sessions and processes. It
// returns when they are gone, which takes a process that does not want to end a few seconds.
func (p *Pool) Close() {
	p.mu.Lock()
	p.close(ErrClosed)
	for _, s := range p.sessions {
		p.retireLocked(s)
	}
	p.mu.Unlock()
	p.work.Wait()
}

// resolve returns a server as it is to be connected to.
func (p *Pool) resolve(server Server) (Server, error) {
	if server.URL == "" {
		configured := p.cfg.Stdio[server.Name]
		server = Server{Name: server.Name, Command: configured.Command, Env: configured.Env}
	}
	return server, server.validate()
}

// acquire returns a session that is up, which the caller must release. On an
// error there is nothing to release.
func (p *Pool) acquire(ctx context.Context, server Server) (*session, *Error) {
	s, err := p.enter(server)
	if err != nil {
		return nil, &Error{Server: server.Name, Err: err}
	}
	select {
	case <-s.ready:
		if s.err != nil {
			p.release(s, false)
			err := *s.err
			err.lost = false // a second one has just failed, or would
			return nil, &err
		}
		return s, nil
	case <-ctx.Done():
		// The session comes up for whoever calls next.
		p.release(s, true)
		return nil, &Error{Server: server.Name, Err: context.Cause(ctx)}
	}
}

// enter counts a caller into the server's session, and makes one if there is none.
func (p *Pool) enter(server Server) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := context.Cause(p.ctx); err != nil {
		return nil, err
	}
	key := server.key()
	s := p.sessions[key]
	if s == nil {
		s = newSession(key, server)
		p.sessions[key] = s
		p.work.Go(func() { p.live(s) })
	}
	s.calls++
	if s.idle != nil {
		s.idle.Stop()
	}
	return s, nil
}

// release counts a caller out. A session that is not kept gets no new calls, and
// ends when its last call has.
func (p *Pool) release(s *session, keep bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.calls--
	switch {
	case !keep || s.retired:
		p.retireLocked(s)
	case s.calls == 0:
		s.idle = time.AfterFunc(p.limits.idle, func() { p.retire(s) })
	}
}

func (p *Pool) retire(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(s)
}

// retireLocked takes a session out of use; it ends when nobody uses it any more.
func (p *Pool) retireLocked(s *session) {
	s.retired = true
	if s.idle != nil {
		s.idle.Stop()
	}
	if p.sessions[s.key] == s {
		delete(p.sessions, s.key)
	}
	if s.calls == 0 {
		s.end()
	}
}
