package llm

import (
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
)

const anthropicBaseURL = "https://api.anthropic.com"

// anthropicWire is the SDK's transport, made without its own constructor for the
// same reason as openAIWire.
type anthropicWire struct{ client anthropic.Client }

func newAnthropicWire(c *Config) anthropicWire {
	base := c.BaseURL
	if base == "" {
		base = anthropicBaseURL
	}
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1") // the SDK adds it
	opts := []option.RequestOption{
		option.WithBaseURL(base + "/"),
		option.WithHTTPClient(c.httpClient()),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
		option.WithHeader("Accept", "text/event-stream"),
	}
	if c.APIKey != "" {
		opts = append(opts, option.WithAPIKey(c.APIKey))
	}
	for _, name := range c.sortedHeaders() {
		opts = append(opts, option.WithHeader(name, c.Headers[name]))
	}
	return anthropicWire{anthropic.Client{Options: opts}}
}

func (w anthropicWire) post(ctx context.Context, body []byte) (*http.Response, error) {
	var resp *http.Response
	err := w.client.Post(ctx, "v1/messages", body, &resp)
	return resp, err
}

func (w anthropicWire) events(resp *http.Response) iter.Seq2[event, error] {
	return eventsOf(ssestream.NewDecoder(resp), func(ev ssestream.Event) event { return event{ev.Type, ev.Data} })
}
