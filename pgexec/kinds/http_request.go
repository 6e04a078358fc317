package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxURL           = 16 << 10
	maxRequestBody   = 1 << 20
	maxRequestHeader = 32 << 10
	maxHeaderValues  = 100

	defaultHTTPTimeout = 30 * time.Second
	maxHTTPTimeout     = 10 * time.Minute

	idempotencyKeyHeader = "Idempotency-Key"
)

// httpInput is the checked input of an http node.
type httpInput struct {
	method  string
	url     *url.URL
	header  http.Header
	body    []byte // nil: none
	timeout time.Duration
}

// parseHTTPInput checks the input of an http node and fills in the defaults, the
// idempotency key among them. Its error is permanent and names the field.
func parseHTTPInput(raw json.RawMessage, idempotencyKey string) (*httpInput, error) {
	f, err := objectFields(inputPath, raw, "method", "url", "headers", "body", "timeout")
	if err != nil {
		return nil, err
	}
	in := &httpInput{}
	if in.url, err = httpURL(f); err != nil {
		return nil, err
	}
	if in.method, err = httpMethod(f); err != nil {
		return nil, err
	}
	if in.header, err = httpHeader(f); err != nil {
		return nil, err
	}
	if in.body, err = httpBody(f, in.header); err != nil {
		return nil, err
	}
	if in.timeout, err = f.duration("timeout", defaultHTTPTimeout, maxHTTPTimeout); err != nil {
		return nil, err
	}
	setDefault(in.header, idempotencyKeyHeader, headerText(idempotencyKey))
	setDefault(in.header, "User-Agent", "pgexec")
	return in, nil
}

func setDefault(h http.Header, name, value string) {
	if _, ok := h[name]; !ok {
		h.Set(name, value)
	}
}

// headerText escapes what may stand in a node's id and not in a header, and the
// escape itself, so that different keys stay different.
func headerText(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7F || s[i] == '%' {
			fmt.Fprintf(&b, "%%%02X", s[i])
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func httpURL(f fields) (*url.URL, error) {
	text, err := f.requiredText("url")
	if err != nil {
		return nil, err
	}
	if len(text) > maxURL {
		return nil, badInput("url: %d bytes are over the limit of %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse repeats the URL whole, and what of it is a secret cannot be told.
		if scheme, _, ok := strings.Cut(text, "://"); ok && isToken(scheme) {
			return nil, badInput("url: what follows %s:// is not a URL", clip(scheme, 20))
		}
		return nil, badInput("url: it is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badInput("url: %q does not begin with http:// or https://", quotable(u))
	case u.Hostname() == "":
		return nil, badInput("url: %q names no host", quotable(u))
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, badInput("url: port %s is not between 1 and 65535", clip(p, 20))
		}
	}
	return u, nil
}

// quotable is what may be shown of a URL that is none to connect to: its user may have become part of the path.
func quotable(u *url.URL) string {
	if strings.Contains(u.Path, "@") {
		return u.Scheme + ":…"
	}
	return plainURL(u)
}

func httpMethod(f fields) (string, error) {
	method, err := f.text("method")
	if err != nil {
		return "", err
	}
	method = strings.ToUpper(method)
	switch {
	case method == "" && f.has("body"):
		return http.MethodPost, nil
	case method == "":
		return http.MethodGet, nil
	case !isToken(method):
		return "", badInput("method: %q is not an HTTP method", clip(method, 40))
	case method == http.MethodConnect:
		return "", badInput("method: CONNECT is not supported")
	}
	return method, nil
}

// connectionHeaders belong to the connection, not to the request: the client sets them itself.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func httpHeader(f fields) (http.Header, error) {
	header := http.Header{}
	if !f.has("headers") {
		return header, nil
	}
	var members map[string]json.RawMessage
	if err := unmarshal(f.members["headers"], &members); err != nil {
		return nil, f.wrongType("headers", "an object")
	}
	size, count := 0, 0
	for _, name := range slices.Sorted(maps.Keys(members)) {
		values, err := headerValues(name, members[name])
		if err != nil {
			return nil, err
		}
		canonical := http.CanonicalHeaderKey(name)
		for _, v := range values {
			header.Add(canonical, v)
			size += len(name) + len(v)
			count++
		}
	}
	if size > maxRequestHeader || count > maxHeaderValues {
		return nil, badInput("headers: %d values with %d bytes are over the limit of %d values and %d bytes",
			count, size, maxHeaderValues, maxRequestHeader)
	}
	return header, nil
}

// headerValues takes a string, a number (what a reference to an id often is), or a list of them.
func headerValues(name string, raw json.RawMessage) ([]string, error) {
	if !isToken(name) {
		return nil, badInput("headers: %q is not a header name", clip(name, 80))
	}
	if slices.Contains(connectionHeaders, http.CanonicalHeaderKey(name)) {
		return nil, badInput("headers: %s is set by the client and cannot be given", http.CanonicalHeaderKey(name))
	}
	list := []json.RawMessage{raw}
	if jsonType(raw) == "a list" {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, badInput("headers.%s: %w", name, err)
		}
	}
	values := make([]string, 0, len(list))
	for _, item := range list {
		item = bytes.TrimSpace(item)
		value, ok := jsonString(item)
		if !ok && len(item) > 0 && (item[0] == '-' || '0' <= item[0] && item[0] <= '9') {
			value, ok = string(item), true
		}
		if !ok {
			return nil, badInput("headers.%s: want a string, a number or a list of them, got %s", name, jsonType(item))
		}
		if !isHeaderValue(value) {
			return nil, badInput("headers.%s: a header's value cannot hold line breaks or other control characters", name)
		}
		values = append(values, value)
	}
	return values, nil
}

// isToken reports whether s may be the name of a method or header (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7F {
			return false
		}
	}
	return true
}

// httpBody returns the bytes to send. A string that comes with a Content-Type is
// sent as it is; all else is sent as the JSON it is, byte for byte.
func httpBody(f fields, header http.Header) ([]byte, error) {
	raw, ok := f.members["body"]
	if !ok {
		return nil, nil
	}
	body := []byte(raw)
	if _, typed := header["Content-Type"]; !typed {
		header.Set("Content-Type", "application/json")
	} else if text, isText := jsonString(raw); isText {
		body = []byte(text)
	}
	if len(body) > maxRequestBody {
		return nil, badInput("body: %d bytes are over the limit of %d", len(body), maxRequestBody)
	}
	return body, nil
}

// request makes the request. Its body can be sent again by a redirect.
func (in *httpInput) request(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if in.body != nil {
		body = bytes.NewReader(in.body)
	}
	req, err := http.NewRequestWithContext(ctx, in.method, in.url.String(), body)
	if err != nil {
		return nil, badInput("url: no request can be made of %s", plainURL(in.url))
	}
	req.Header = in.header.Clone()
	return req, nil
}
