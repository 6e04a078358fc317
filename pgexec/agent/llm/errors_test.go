package llm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// failure runs one request and returns its error.
func failure(t *testing.T, p llm.Provider, a answer) *llm.Error {
	t.Helper()
	turn, err := newModel(t, a).client(p).Do(t.Context(), hello(), nil)
	var e *llm.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %+v, %v; want an error", turn, err)
	}
	if e.Provider != p {
		t.Errorf("provider is %q", e.Provider)
	}
	return e
}

func TestError_IsClassifiedByItsBody(t *testing.T) {
	t.Parallel()
	openAIError := func(message, kind, code string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%s}}`, message, kind, code)
	}
	anthropicError := func(kind, message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, kind, message)
	}
	for _, tc := range []struct {
		status    int
		body      string
		want      llm.Kind
		permanent bool
	}{
		{429, openAIError("Rate limit reached for gpt-5", "tokens", `"rate_limit_exceeded"`), llm.RateLimited, false},
		{429, openAIError("You exceeded your current quota", "insufficient_quota", `"insufficient_quota"`), llm.QuotaExceeded, true},
		{429, openAIError("Provider returned error", "", `429`), llm.RateLimited, false},
		{429, anthropicError("rate_limit_error", "Number of requests"), llm.RateLimited, false},
		{429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 34.07s.","status":"RESOURCE_EXHAUSTED"}}]`, llm.RateLimited, false},
		{429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}]`, llm.QuotaExceeded, true},
		{529, anthropicError("overloaded_error", "Overloaded"), llm.Overloaded, false},
		{529, "", llm.Overloaded, false},
		{503, "upstream connect error", llm.Overloaded, false},
		{500, anthropicError("api_error", "Internal server error"), llm.Server, false},
		{500, openAIError("The server had an error", "server_error", `null`), llm.Server, false},
		{502, "<html>Bad gateway</html>", llm.Server, false},
		{504, anthropicError("timeout_error", "timed out"), llm.Server, false},
		{401, openAIError("Incorrect API key provided", "invalid_request_error", `"invalid_api_key"`), llm.BadKey, true},
		{401, anthropicError("authentication_error", "invalid x-api-key"), llm.BadKey, true},
		{400, `[{"error":{"code":400,"message":"API key not valid. Invalid API key.","status":"INVALID_ARGUMENT"}}]`, llm.BadKey, true},
		{402, openAIError("Insufficient credits", "", `402`), llm.QuotaExceeded, true},
		{400, anthropicError("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), llm.QuotaExceeded, true},
		{403, anthropicError("permission_error", "Your API key does not have permission"), llm.Forbidden, true},
		{404, openAIError("The model `gpt-9` does not exist or you do not have access to it.", "invalid_request_error", `"model_not_found"`), llm.UnknownModel, true},
		{404, anthropicError("not_found_error", "model: claude-99"), llm.UnknownModel, true},
		{404, `{"object":"error","message":"The model m does not exist.","type":"NotFoundError","code":404}`, llm.UnknownModel, true},
		{404, "404 page not found", llm.BadRequest, true},
		{400, openAIError("This model's maximum context length is 128000 tokens.", "invalid_request_error", `"context_length_exceeded"`), llm.ContextOverflow, true},
		{400, anthropicError("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"), llm.ContextOverflow, true},
		{400, anthropicError("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"), llm.ContextOverflow, true},
		{413, anthropicError("request_too_large", "Request exceeds the maximum size"), llm.ContextOverflow, true},
		{400, openAIError("Invalid value", "invalid_request_error", `null`), llm.BadRequest, true},
		{422, `{"detail":"Unprocessable"}`, llm.BadRequest, true},
		{400, `{"error":"bad things"}`, llm.BadRequest, true},
		{400, `{"error":{"message":"Tool call validation failed","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"{}"}}`, llm.ToolUseFailed, true},
		{302, "", llm.BadRequest, true},
		{200, "data: " + openAIError("Overloaded", "overloaded_error", `null`) + "\n\n", llm.Overloaded, false},
		{200, "data: " + openAIError("Provider returned error", "", `502`) + "\n\n", llm.Server, false},
		{200, "data: " + openAIError("Provider returned error", "", `429`) + "\n\n", llm.RateLimited, false},
		{200, `data: {"error":"something"}` + "\n\n", llm.Server, false},
		{200, "data: {\n\n", llm.Server, false},
		{200, `event: error` + "\ndata: " + anthropicError("overloaded_error", "Overloaded") + "\n\n", llm.Overloaded, false},
	} {
		for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
			if p == llm.Anthropic && strings.HasPrefix(tc.body, `data: {"error"`) {
				continue // its errors are events of that name
			}
			e := failure(t, p, answer{status: tc.status, body: tc.body})
			if e.Kind != tc.want || e.Permanent() != tc.permanent {
				t.Errorf("%s, %d %s: is %s, permanent %v; want %s, %v", p, tc.status, tc.body, e.Kind, e.Permanent(), tc.want, tc.permanent)
			}
			if e.Status != tc.status || e.Message == "" && tc.body != "" {
				t.Errorf("%s, %d %s: status is %d, message %q", p, tc.status, tc.body, e.Status, e.Message)
			}
		}
	}
}

func TestError_SaysHowLongToWait_C49(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		header map[string]string
		want   time.Duration
	}{
		{map[string]string{"Retry-After": "12"}, 12 * time.Second},
		{map[string]string{"Retry-After": "0.5"}, 500 * time.Millisecond},
		{map[string]string{"Retry-After": "7200"}, 2 * time.Hour},
		{map[string]string{"Retry-After": "9", "Retry-After-Ms": "250"}, 250 * time.Millisecond},
		{map[string]string{"Retry-After": "Sun, 29 Nov 2026 12:01:30 GMT", "Date": "Sun, 29 Nov 2026 12:00:00 GMT"}, 90 * time.Second},
		{map[string]string{"Retry-After": "Sun, 29 Nov 2026 11:00:00 GMT", "Date": "Sun, 29 Nov 2026 12:00:00 GMT"}, 0},
		{map[string]string{"Retry-After": "-3"}, 0},
		{map[string]string{"Retry-After": "NaN"}, 0},
		{map[string]string{"Retry-After": "1e300"}, 365 * 24 * time.Hour},
		{map[string]string{"Retry-After": "soon"}, 0},
		{nil, 0},
	} {
		for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
			e := failure(t, p, answer{status: 429, header: tc.header, body: `{}`})
			if e.RetryAfter != tc.want || e.Kind != llm.RateLimited {
				t.Errorf("%s, %v: %s after %s, want %s", p, tc.header, e.Kind, e.RetryAfter, tc.want)
			}
		}
	}
}

func TestError_TheServersWordOnRetriesHolds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status    int
		word      string
		permanent bool
	}{
		{400, "true", false},
		{500, "false", true},
		{401, "true", true}, // no wait mends a wrong key
	} {
		e := failure(t, llm.OpenAI, answer{status: tc.status, header: map[string]string{"X-Should-Retry": tc.word}, body: `{"error":{"message":"x"}}`})
		if e.Permanent() != tc.permanent {
			t.Errorf("%d, x-should-retry %s: permanent is %v", tc.status, tc.word, e.Permanent())
		}
	}
}

func TestError_OneRequestIsSent_C49(t *testing.T) {
	t.Parallel()
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		m := newModel(t, answer{status: 429, header: map[string]string{"Retry-After": "3600", "X-Should-Retry": "true"}, body: `{}`})
		if _, err := m.client(p).Do(t.Context(), hello(), nil); err == nil {
			t.Fatal("no error")
		}
		if len(m.bodies) != 1 {
			t.Errorf("%s: %d requests were sent", p, len(m.bodies))
		}
	}
}

func TestError_NeverShowsTheKey(t *testing.T) {
	t.Parallel()
	echo := fmt.Sprintf(`{"error":{"message":"Incorrect API key %s, also sk-proj-****************abcd, header tok-12345678","code":%q,"type":"x","failed_generation":%q}}`, testKey, testKey, testKey)
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		for _, a := range []answer{
			{status: 401, body: echo, header: map[string]string{"X-Request-Id": testKey}},
			{status: 302, header: map[string]string{"Location": "https://example.org/?key=" + testKey}},
			{status: 500, body: "no JSON: " + testKey},
			{body: "event: error\ndata: " + echo + "\n\n"},
			{body: "data: {" + testKey + "\n\n"},
		} {
			m := newModel(t, a)
			client := m.client(p, func(c *llm.Config) { c.Headers = map[string]string{"X-Token": "Bearer tok-12345678"} })
			_, err := client.Do(t.Context(), hello(), nil)
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			shown := fmt.Sprintf("%s %v %+v %#v %s", err, err, e, *e, asJSON(t, e))
			for _, secret := range []string{testKey, "tok-12345678", "abcd"} {
				if strings.Contains(shown, secret) {
					t.Errorf("%s: %s shows %q", p, shown, secret)
				}
			}
			if got := m.headers[0].Get("X-Token"); got != "Bearer tok-12345678" {
				t.Errorf("%s: header is %q", p, got)
			}
		}
	}
}

// A server that repeats what it was sent puts no secret into the answer, the call, or what else is recorded.
func TestTurn_NeverShowsTheKey(t *testing.T) {
	t.Parallel()
	secrets := testKey + ` \u0074ok-12345678`
	bodies := map[llm.Provider]string{
		llm.OpenAI: chunks(delta(`{"content":"I got `+secrets+`","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"k\": \"`+testKey+`\"}"}}]}`), finish("tool_calls")),
		llm.Anthropic: `data: {"type":"message_start","message":{"id":"m","model":"` + testKey + `","usage":{"input_tokens":1}}}` + "\n\n" +
			`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"I got ` + secrets + `"}}` + "\n\n" +
			`data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{"k":"` + testKey + `"}}}` + "\n\n" +
			`data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
	}
	for p, body := range bodies {
		m := newModel(t, answer{body: body, header: map[string]string{"X-Request-Id": testKey}})
		turn, err := m.client(p, func(c *llm.Config) {
			c.Headers, c.Secrets = map[string]string{"X-Token": "Bearer tok-12345678", "X-Title": "I got"}, []string{"tok-12345678"}
		}).Do(t.Context(), hello(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if shown := asJSON(t, turn); strings.Contains(shown, testKey) || strings.Contains(shown, "tok-12345678") || strings.Contains(shown, `\u0074ok`) {
			t.Errorf("%s: %s", p, shown)
		}
		if turn.Text != "I got [redacted] [redacted]" || len(turn.Calls) != 1 || !strings.Contains(string(turn.Calls[0].Args), "[redacted]") {
			t.Errorf("%s: got %+v", p, turn)
		}
	}
}

func TestError_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := newModel(t, answer{status: 404, header: map[string]string{"X-Request-Id": "req_7"}, body: `{"error":{"message":"The model does not exist","type":"invalid_request_error","code":"model_not_found"}}`})
	_, err := m.client(llm.OpenAI).Do(t.Context(), hello(), nil)
	want := `openai: unknown model (HTTP 404, model_not_found, request req_7): The model does not exist; check the model's name and the base URL`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestError_AWebPageIsNoAnswer(t *testing.T) {
	t.Parallel()
	e := failure(t, llm.OpenAI, answer{header: map[string]string{"Content-Type": "text/html; charset=utf-8"}, body: "<html>"})
	if e.Kind != llm.BadRequest || !strings.Contains(e.Message, "base URL") {
		t.Errorf("got %v", e)
	}
}

func TestError_NoConnectionIsRetryable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		client, err := llm.New(llm.Config{Provider: p, BaseURL: "http://" + l.Addr().String(), Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(t.Context(), hello(), nil)
		var e *llm.Error
		var refused *net.OpError
		if !errors.As(err, &e) || e.Kind != llm.Connection || e.Permanent() || !errors.As(err, &refused) {
			t.Errorf("%s: got %v", p, err)
		}
	}
}

func TestError_AConnectionThatBreaksIsRetryable(t *testing.T) {
	t.Parallel()
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		client := inMemory(t, p, func(w *wireEnd) {
			w.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n")
			w.close()
		})
		_, err := client.Do(t.Context(), hello(), nil)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.Connection {
			t.Errorf("%s: got %v, want %s", p, err, llm.Connection)
		}
	}
}

func TestDo_TheCallersCancelPassesThrough(t *testing.T) {
	t.Parallel()
	stop := errors.New("the run was cancelled")
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		for _, head := range []string{"", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			client := inMemory(t, p, func(w *wireEnd) {
				w.send(head)
				cancel(stop)
				w.wait()
			})
			if _, err := client.Do(ctx, hello(), nil); !errors.Is(err, stop) {
				t.Errorf("%s: got %v, want %v", p, err, stop)
			}
		}
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]llm.Config{
		`provider is "x"`:            {Provider: "x", Model: "m"},
		"the model has no name":      {Provider: llm.OpenAI},
		"must be as https://":        {Provider: llm.OpenAI, Model: "m", BaseURL: "localhost:8080"},
		"has a user, query":          {Provider: llm.OpenAI, Model: "m", BaseURL: "https://u:secret@example.org/"},
		"has a user, query or":       {Provider: llm.OpenAI, Model: "m", BaseURL: "https://example.org/?key=secret"},
		"cannot be parsed":           {Provider: llm.OpenAI, Model: "m", BaseURL: "https://secret%"},
		"the API key has a blank":    {Provider: llm.OpenAI, Model: "m", APIKey: "secret\n"},
		"timeouts are -1s and 10m0s": {Provider: llm.OpenAI, Model: "m", IdleTimeout: -time.Second},
	} {
		_, err := llm.New(c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNew_TheBaseURLIsThatOfTheDocumentation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		provider   llm.Provider
		path, want string
	}{
		{llm.OpenAI, "", "/chat/completions"},
		{llm.OpenAI, "/v1", "/v1/chat/completions"},
		{llm.OpenAI, "/api/v1/", "/api/v1/chat/completions"},
		{llm.Anthropic, "", "/v1/messages"},
		{llm.Anthropic, "/v1", "/v1/messages"},
		{llm.Anthropic, "/proxy/v1/", "/proxy/v1/messages"},
	} {
		m := newModel(t, answer{status: http.StatusBadRequest})
		client := m.client(tc.provider, func(c *llm.Config) { c.BaseURL += tc.path })
		if _, err := client.Do(t.Context(), hello(), nil); err == nil || m.paths[0] != tc.want {
			t.Errorf("%s %q: asked %s (%v), want %s", tc.provider, tc.path, m.paths[0], err, tc.want)
		}
	}
}
