package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxMessage bounds, in bytes, what an error quotes.
const maxMessage = 1000

// problem is an error as a provider describes it. All do it differently.
type problem struct {
	message, kind, code string
	status              int // where the code is one
	generation          string
	requestID           string
}

// readProblem finds the description in a body or an event.
func readProblem(body []byte) problem {
	body = bytes.TrimSpace(body)
	if list := []json.RawMessage{}; json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0] // one provider wraps it in a list
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(body, &fields) != nil {
		return problem{message: string(body)}
	}
	p := problem{requestID: stringOf(fields["request_id"])}
	inner := map[string]json.RawMessage{}
	switch err := fields["error"]; {
	case json.Unmarshal(err, &inner) == nil && len(inner) > 0:
		p.read(inner)
	default:
		p.read(fields)
		if s := stringOf(err); s != "" {
			p.message = s
		}
	}
	if p.message == "" {
		p.message = string(body)
	}
	return p
}

func (p *problem) read(fields map[string]json.RawMessage) {
	p.message = stringOf(fields["message"])
	if p.message == "" {
		p.message = stringOf(fields["detail"])
	}
	p.kind, p.code = stringOf(fields["type"]), stringOf(fields["code"])
	p.status, _ = strconv.Atoi(p.code)
	p.generation = stringOf(fields["failed_generation"])
	var metadata struct{ Raw string }
	if json.Unmarshal(fields["metadata"], &metadata) == nil && metadata.Raw != "" {
		p.message += ": " + metadata.Raw // a router's report of what its provider said
	}
}

// stringOf is a string, or a number as one; "" for anything else.
func stringOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// newError makes an error of what a provider answered. The body counts before
// the status: there are two meanings of 429, and an error in a stream comes with 200.
func newError(status int, header http.Header, body []byte) *Error {
	p := readProblem(body)
	e := &Error{
		Status:      status,
		Code:        p.code,
		Message:     p.message,
		RequestID:   p.requestID,
		Generation:  p.generation,
		RetryAfter:  retryAfter(header, time.Now()),
		shouldRetry: header.Get("X-Should-Retry"),
	}
	if e.RequestID == "" {
		e.RequestID = requestID(header)
	}
	if e.Code == "" || p.status != 0 {
		e.Code = p.kind
	}
	if status < 300 && p.status != 0 {
		status = p.status
	}
	if e.Kind = p.kindByWords(); e.Kind == "" {
		e.Kind = kindByStatus(status)
	}
	return e
}

// words are what providers call their errors, the more telling ones first.
var words = []struct {
	kind Kind
	in   []string
}{
	{ToolUseFailed, []string{"tool_use_failed", "malformed_function_call"}},
	{QuotaExceeded, []string{"insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance"}},
	{ContextOverflow, []string{"context_length_exceeded", "request_too_large", "model_context_window_exceeded"}},
	{UnknownModel, []string{"model_not_found", "model_decommissioned", "unknown_model"}},
	{RateLimited, []string{"rate_limit_exceeded", "rate_limit_error", "rate_limited"}},
	{Overloaded, []string{"overloaded_error", "overloaded", "engine_overloaded", "server_is_overloaded", "slow_down"}},
	{BadKey, []string{"invalid_api_key", "authentication_error", "invalid_authentication"}},
	{Forbidden, []string{"permission_error", "permission_denied"}},
	{Server, []string{"api_error", "server_error", "internal_server_error", "internal_error", "timeout_error", "gateway_timeout", "gateway_timeout_error"}},
}

// phrases are for what has no word of its own, in messages of "invalid request".
var phrases = []struct {
	kind    Kind
	pattern *regexp.Regexp
}{
	// Some say the same of a minute's quota and of one that is used up; only the former comes back.
	{RateLimited, regexp.MustCompile(`(retry|try again) in \d`)},
	{QuotaExceeded, regexp.MustCompile(`credit balance is too low|exceeded your current quota|insufficient (credits|balance)`)},
	{ContextOverflow, regexp.MustCompile(`prompt is too long|maximum context length|exceeds? (the )?(model's )?(maximum )?context|context (window|size|length) (is |was )?exceeded|input is too long|too many tokens in (the )?prompt`)},
	{UnknownModel, regexp.MustCompile(`model.{0,100}(does not exist|not found|is not supported)|^model: |unknown model|no such model|not a valid model`)},
	{BadKey, regexp.MustCompile(`(incorrect|invalid|missing) (x-)?api[ -]key`)},
}

func (p *problem) kindByWords() Kind {
	for _, w := range words {
		for _, word := range w.in {
			if strings.EqualFold(p.code, word) || strings.EqualFold(p.kind, word) {
				return w.kind
			}
		}
	}
	for _, ph := range phrases {
		if ph.pattern.MatchString(strings.ToLower(p.message)) {
			return ph.kind
		}
	}
	return ""
}

func kindByStatus(status int) Kind {
	switch {
	case status == http.StatusUnauthorized:
		return BadKey
	case status == http.StatusPaymentRequired:
		return QuotaExceeded
	case status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusRequestEntityTooLarge:
		return ContextOverflow
	case status == http.StatusTooManyRequests:
		return RateLimited
	case status == http.StatusServiceUnavailable || status == 529:
		return Overloaded
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status >= 500 || status < 300:
		return Server
	default:
		return BadRequest
	}
}

// retryAfter reads how long to wait: milliseconds, seconds, or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		return wait(ms, time.Millisecond)
	}
	value := header.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return wait(s, time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		if date, err := http.ParseTime(header.Get("Date")); err == nil {
			now = date // the server's clock is the one that it means
		}
		return max(0, at.Sub(now))
	}
	return 0
}

// wait multiplies, within what is a duration.
func wait(n float64, unit time.Duration) time.Duration {
	const longest = 365 * 24 * time.Hour
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(longest)))
}

func requestID(header http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id"} {
		if id := header.Get(name); id != "" {
			return id
		}
	}
	return ""
}
