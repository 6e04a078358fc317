package llm

import (
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

const openAIBaseURL = "https://api.openai.com/v1"

// openAIWire is the SDK's transport. The client is made without the SDK's own
// constructor, which would read keys, addresses and headers from the environment.
type openAIWire struct{ client openai.Client }

func newOpenAIWire(c *Config) openAIWire {
	base := c.BaseURL
	if base == "" {
		base = openAIBaseURL
	}
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(base, "/") + "/"),
		option.WithHTTPClient(c.httpClient()),
		option.WithMaxRetries(0), // a wait belongs in the log, not in a goroutine
		option.WithHeader("Accept", "text/event-stream"),
	}
	if c.APIKey != "" {
		opts = append(opts, option.WithAPIKey(c.APIKey))
	}
	for _, name := range c.sortedHeaders() {
		opts = append(opts, option.WithHeader(name, c.Headers[name]))
	}
	return openAIWire{openai.Client{Options: opts}}
}

func (w openAIWire) post(ctx context.Context, body []byte) (*http.Response, error) {
	var resp *http.Response
	err := w.client.Post(ctx, "chat/completions", body, &resp)
	return resp, err
}

func (w openAIWire) events(resp *http.Response) iter.Seq2[event, error] {
	return eventsOf(ssestream.NewDecoder(resp), func(ev ssestream.Event) event { return event{ev.Type, ev.Data} })
}
