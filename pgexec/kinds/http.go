package kinds

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/pgexec/runtime/pgexec"
)

// httpKind makes one HTTP exchange a node.
type httpKind struct {
	client *http.Client
}

// Codes of the errors of http nodes.
const (
	codeHTTPStatus     = "http_status"
	codeAddressRefused = "address_refused"
	codeRedirect       = "redirect"
	codeTLS            = "tls"
)

// errExchangeTimeout ends an exchange that takes longer than the node allows.
var errExchangeTimeout = errors.New("timeout of the exchange")

func (k *httpKind) handle(ctx context.Context, n *pgexec.Node, input json.RawMessage) (json.RawMessage, error) {
	return k.exchange(ctx, input, n.IdempotencyKey())
}

// exchange sends the request that input describes and returns the node's output.
func (k *httpKind) exchange(ctx context.Context, input json.RawMessage, idempotencyKey string) (json.RawMessage, error) {
	in, err := parseHTTPInput(input, idempotencyKey)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, in.timeout, errExchangeTimeout)
	defer cancel()
	req, err := in.request(bounded)
	if err != nil {
		return nil, err
	}
	out, err := k.send(req)
	if cause := cutOff(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err == nil || isFault(err) {
		return out, err
	}
	what := in.method + " " + plainURL(in.url)
	if errors.Is(context.Cause(bounded), errExchangeTimeout) {
		return nil, retryable(codeTimeout, "%s: no complete answer within %s", what, in.timeout)
	}
	return nil, exchangeFault(what, err)
}

func (k *httpKind) send(req *http.Request) (json.RawMessage, error) {
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 399 {
		return nil, statusFault(resp)
	}
	return readOutput(resp)
}

// statusFault is the error of an answer that is no success. Statuses that say
// "not now" are retried, with the wait the server asks for.
func statusFault(resp *http.Response) error {
	const format = "%s answered %s%s"
	status := strings.TrimSpace(resp.Status)
	switch s := resp.StatusCode; {
	case s >= 500, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		err := retryable(codeHTTPStatus, format, describe(resp), status, excerpt(resp))
		if wait := retryAfter(resp); wait > 0 {
			err = pgexec.RetryAfter(err, wait)
		}
		return err
	default:
		return permanent(codeHTTPStatus, format, describe(resp), status, excerpt(resp))
	}
}

// exchangeFault decides whether an exchange without an answer is worth another attempt.
func exchangeFault(what string, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		// Its text repeats the URL with the query.
		err = wrapped.Err
	}
	var refused *refusedError
	var redirect *redirectError
	var switched *switchError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused): // without the dialler's words around it
		return permanent(codeAddressRefused, "%s: %w", what, refused)
	case errors.Is(err, ErrAddressRefused):
		return permanent(codeAddressRefused, "%s: %w", what, err)
	case errors.As(err, &redirect):
		return permanent(codeRedirect, "%s: %w", what, redirect)
	case isBadLocation(err): // its text repeats the URL with the query
		return permanent(codeRedirect, "%s: the Location of its redirect is not a URL", what)
	case errors.As(err, &switched):
		return permanent(codeHTTPStatus, "%s: %w", what, switched)
	case errors.As(err, &certificate):
		return permanent(codeTLS, "%s: %w", what, err)
	case isHeaderTooLarge(err):
		return permanent(codeTooLarge, "%s: response header over the limit of %d bytes", what, maxResponseHeader)
	default:
		return retryable(codeConnection, "%s: %w", what, err)
	}
}

// isBadLocation knows the words of net/http, which has no value for it.
func isBadLocation(err error) bool {
	return strings.Contains(err.Error(), "failed to parse Location header")
}

// isHeaderTooLarge knows the words of net/http, which has no value for it. With
// other words the error would merely be retried.
func isHeaderTooLarge(err error) bool {
	text := err.Error()
	return strings.Contains(text, "response headers exceeded") || strings.Contains(text, "response header list larger")
}
