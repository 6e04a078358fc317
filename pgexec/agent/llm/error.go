package llm

import (
	"fmt"
	"strings"
	"time"
)

// Kind says what a failure is, and so what to do about it.
type Kind string

// A turn that failed with one of these may succeed when it is asked again.
const (
	RateLimited Kind = "rate_limited" // wait for Error.RetryAfter
	Overloaded  Kind = "overloaded"   // wait for Error.RetryAfter
	Server      Kind = "server"       // the provider's own failure
	Connection  Kind = "connection"   // no connection, or it broke
	Idle        Kind = "idle"         // no byte for Config.IdleTimeout
	Incomplete  Kind = "incomplete"   // the answer ended without its end marker
	Deadline    Kind = "deadline"     // not complete within Config.TotalTimeout
)

// The same request fails again with one of these.
const (
	QuotaExceeded   Kind = "quota_exceeded"   // no credit left
	BadKey          Kind = "bad_key"          // the key is not accepted
	Forbidden       Kind = "forbidden"        // the key may not do this
	UnknownModel    Kind = "unknown_model"    // there is no such model
	ContextOverflow Kind = "context_overflow" // longer than the model's window: shorten it
	BadRequest      Kind = "bad_request"      // refused for another reason
	ToolUseFailed   Kind = "tool_use_failed"  // the provider refused the model's call: see FailedTurn
)

// Error is how a turn fails. Neither it nor what it wraps shows the API key.
type Error struct {
	Kind     Kind
	Provider Provider
	Status   int    // of HTTP, 200 if it came in the stream, 0 if there was no answer
	Code     string // the provider's word for it
	Message  string // what the provider says, or what was seen
	// RequestID is the provider's, for its support.
	RequestID string
	// RetryAfter is how long the provider asks to wait, 0 if it does not say. It is
	// not bounded: some ask for hours.
	RetryAfter time.Duration
	// Generation is what the model wrote where the provider refused it (ToolUseFailed).
	Generation string

	shouldRetry string // the header x-should-retry
	cause       error
}

// Permanent reports whether asking the same again is of no use.
func (e *Error) Permanent() bool {
	switch e.Kind {
	case RateLimited, Overloaded, Server, BadRequest:
		if e.shouldRetry != "" {
			return e.shouldRetry != "true"
		}
		return e.Kind == BadRequest
	case Connection, Idle, Incomplete, Deadline:
		return false
	default:
		return true
	}
}

// kindWords are the words for a kind: what happened, and what to do as far as it is not plain.
var kindWords = map[Kind]struct{ what, advice string }{
	RateLimited:     {"rate limited", "ask again later"},
	Overloaded:      {"overloaded", "ask again later"},
	Server:          {"the provider failed", ""},
	Connection:      {"no connection", ""},
	Idle:            {"silence", ""},
	Incomplete:      {"incomplete answer", ""},
	Deadline:        {"too slow", ""},
	QuotaExceeded:   {"no quota left", "add credit to the account or raise its limit, then retry"},
	BadKey:          {"API key refused", "check the environment variable or file that the key is read from"},
	Forbidden:       {"not allowed", "check what this key may use"},
	UnknownModel:    {"unknown model", "check the model's name and the base URL"},
	ContextOverflow: {"conversation too long", "shorten it or take a model with a larger window"},
	BadRequest:      {"request refused", "check the definition against the provider's documentation"},
	ToolUseFailed:   {"call refused", "tell the model what was wrong with it"},
}

// Error says what happened, in whose words, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	words := kindWords[e.Kind]
	fmt.Fprintf(&b, "%s: %s", e.Provider, words.what)
	var facts []string
	if e.Status != 0 && e.Status != 200 {
		facts = append(facts, fmt.Sprintf("HTTP %d", e.Status))
	}
	if e.Code != "" {
		facts = append(facts, e.Code)
	}
	if e.RequestID != "" {
		facts = append(facts, "request "+e.RequestID)
	}
	if facts != nil {
		fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if words.advice != "" {
		fmt.Fprintf(&b, "; %s", words.advice)
	}
	return b.String()
}

// Unwrap gives what the transport said, where nothing was answered.
func (e *Error) Unwrap() error { return e.cause }
