package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The bounds of a turn where Config says nothing.
const (
	defaultIdleTimeout  = 60 * time.Second
	defaultTotalTimeout = 10 * time.Minute
)

// Config is one model of one provider. Provider and Model are required.
type Config struct {
	Provider Provider
	// BaseURL is where the API begins, as in the provider's documentation:
	// https://api.openai.com/v1, or https://api.anthropic.com. These are the defaults.
	BaseURL string
	// APIKey may be empty for a server that asks for none.
	APIKey string
	Model  string
	// HTTPClient makes the connections. Defaults to one with the default transport.
	// Its Timeout is not used, and redirects are not followed.
	HTTPClient *http.Client
	// IdleTimeout bounds the time without a single byte from the provider, the wait
	// for the first one included; keep-alives count as bytes. Defaults to 60 s.
	IdleTimeout time.Duration
	// TotalTimeout bounds a turn. Defaults to 10 min.
	TotalTimeout time.Duration
	// Headers are sent with every request. No error shows their values.
	Headers map[string]string
	// Secrets are what headers have that no answer may show either, as it may not show the key.
	Secrets []string
}

// Client asks one model. It is safe for concurrent use and holds nothing that
// has to be closed.
type Client struct {
	config   Config
	wire     wire
	redactor redactor
}

// wire is a provider's SDK: it sends bytes and cuts the answer into events.
type wire interface {
	// post returns the response also where it has an error status.
	post(ctx context.Context, body []byte) (*http.Response, error)
	events(resp *http.Response) iter.Seq2[event, error]
}

// event is one server-sent event.
type event struct {
	name string
	data []byte
}

// decoder cuts a stream into events; both SDKs have one of this shape.
type decoder[E any] interface {
	Next() bool
	Event() E
	Err() error
}

func eventsOf[E any](dec decoder[E], convert func(E) event) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		for dec.Next() {
			if !yield(convert(dec.Event()), nil) {
				return
			}
		}
		if err := dec.Err(); err != nil {
			yield(event{}, err)
		}
	}
}

// New checks a configuration. It opens no connection.
func New(c Config) (*Client, error) {
	c.Headers = maps.Clone(c.Headers)
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdleTimeout
	}
	if c.TotalTimeout == 0 {
		c.TotalTimeout = defaultTotalTimeout
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure model: %w", err)
	}
	client := &Client{config: c, redactor: newRedactor(&c)}
	switch c.Provider {
	case OpenAI:
		client.wire = newOpenAIWire(&c)
	default:
		client.wire = newAnthropicWire(&c)
	}
	return client, nil
}

func (c *Config) validate() error {
	if _, err := formatOf(c.Provider); err != nil {
		return err
	}
	if c.Model == "" {
		return errors.New("the model has no name")
	}
	if c.IdleTimeout < 0 || c.TotalTimeout < 0 {
		return fmt.Errorf("timeouts are %s and %s, must not be negative", c.IdleTimeout, c.TotalTimeout)
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the API key has a blank, a line break or a letter that no key has: look at where it is read from")
	}
	if c.BaseURL == "" {
		return nil
	}
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return errors.New("the base URL cannot be parsed") // the error would show all of it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("the base URL is %q, must be as https://host/path", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the base URL of host %q has a user, query or fragment: give the key in a variable or file, not in the URL", u.Host)
	}
	return nil
}

// httpClient is the configured one, made fit for streams and secrets.
func (c *Config) httpClient() *http.Client {
	client := http.Client{Transport: http.DefaultTransport}
	if c.HTTPClient != nil {
		client = *c.HTTPClient
		if client.Transport == nil {
			client.Transport = http.DefaultTransport
		}
	}
	client.Timeout = 0
	// A redirected POST is not what was asked, and the key would go along.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Transport = boundedErrors{client.Transport}
	return &client
}

// maxErrorBody bounds what is read of an error.
const maxErrorBody = 64 << 10

// boundedErrors cuts the body of error responses, which the SDKs read whole.
type boundedErrors struct{ next http.RoundTripper }

func (b boundedErrors) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	}
	return resp, err
}

// sortedHeaders gives the configured headers in one order.
func (c *Config) sortedHeaders() []string { return slices.Sorted(maps.Keys(c.Headers)) }
