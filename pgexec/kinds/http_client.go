package kinds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxRedirects          = 10
	maxResponseHeader     = 64 << 10
	maxIdleConns          = 100
	maxIdleConnsPerHost   = 8
	idleConnKeptFor       = 30 * time.Second
	tlsHandshakeTakes     = 10 * time.Second
	dialTakes             = 30 * time.Second
	keepAliveProbedEvery  = 15 * time.Second
	expectContinueWaitFor = time.Second
)

// newHTTPClient returns a client that dials only what allow lets it dial, takes
// no proxy from the environment and keeps a bounded number of idle connections.
func newHTTPClient(allow allowList) *http.Client {
	return &http.Client{
		Transport: &boundTransport{&http.Transport{
			DialContext:            allow.dial,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    tlsHandshakeTakes,
			ExpectContinueTimeout:  expectContinueWaitFor,
			MaxResponseHeaderBytes: maxResponseHeader,
			MaxIdleConns:           maxIdleConns,
			MaxIdleConnsPerHost:    maxIdleConnsPerHost,
			IdleConnTimeout:        idleConnKeptFor,
		}},
		CheckRedirect: checkRedirect,
	}
}

// boundTransport keeps every answer within the context of its request. A server may switch protocols unasked: the body
// of that answer is the connection itself, on which no context has a hold, so it is closed here.
type boundTransport struct{ *http.Transport }

func (t *boundTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusOK {
		resp.Body.Close()
		return nil, &switchError{clip(strings.TrimSpace(resp.Status), 80)}
	}
	return resp, err
}

// switchError is an answer that is none: it says how to go on instead.
type switchError struct{ status string }

func (e *switchError) Error() string {
	return "answered " + e.status + ", which the request did not ask for"
}

// dial connects to the host of a URL. The check runs in the dialer's control
// hook, on each address after name resolution, so that a name cannot answer
// differently between check and connect.
func (a allowList) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	var permitted atomic.Bool
	d := net.Dialer{
		Timeout:         dialTakes,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveProbedEvery, Interval: keepAliveProbedEvery},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("parse dialled address %q: %w", address, err)
			}
			if err := a.check(host, to); err != nil {
				return err
			}
			permitted.Store(true)
			return nil
		},
	}
	conn, err := d.DialContext(ctx, network, hostPort)
	var refused *refusedError
	if errors.As(err, &refused) && permitted.Load() {
		// The dialer reports the first address it tried, and that one was refused.
		// Others were not and may answer the next time.
		return nil, fmt.Errorf("none of the permitted addresses of %s answered", host)
	}
	return conn, err
}

// redirectError is a redirect that is not followed.
type redirectError struct{ fault string }

func (e *redirectError) Error() string { return e.fault }

// forwardedHeaders are those of the request's headers that are sent to another
// origin than the one the node named. All others may be secrets of that origin.
// The idempotency key is none, and the request is still the same one.
var forwardedHeaders = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Content-Language", "Content-Type", "User-Agent", idempotencyKeyHeader,
}

// checkRedirect bounds redirects and keeps headers from other origins. Once a
// request was sent elsewhere, headers stay away even when it comes back, since
// another server then chose the URL.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &redirectError{fmt.Sprintf("stopped after %d redirects", maxRedirects)}
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return &redirectError{fmt.Sprintf("redirect to scheme %q refused: only http and https are followed", req.URL.Scheme)}
	}
	left := slices.ContainsFunc(append(via[1:len(via):len(via)], req), func(r *http.Request) bool {
		return !sameOrigin(via[0].URL, r.URL)
	})
	if left {
		for name := range req.Header {
			if !slices.Contains(forwardedHeaders, name) {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// sameOrigin takes the https form of an http URL for the same origin: what was
// sent in the clear may be sent encrypted.
func sameOrigin(first, next *url.URL) bool {
	if first.Scheme == next.Scheme && first.Host == next.Host {
		return true
	}
	return first.Scheme == "http" && next.Scheme == "https" && first.Hostname() == next.Hostname() &&
		(first.Port() == "" || first.Port() == "80") && (next.Port() == "" || next.Port() == "443")
}
