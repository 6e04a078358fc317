package fakemodel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// long is twenty turns of three calls each, some of which are defective.
const long = `
rules:
  - when: {turn: 0-19}
    reply:
      thinking: What next?
      text: Turn {{turn}}.
      calls:
        - {name: good, args: {n: "{{turn}}", last: "{{tool_result \"good\"}}"}}
        - {name: malformed, raw_args: '{"n": '}
        - {name: anonymous, id: "", args: {x: 1}, index: missing}
      usage: {input: 100, cached: 50, output: 10, reasoning: 2}
  - reply: {text: Done.}
`

// C45, C46, C47: pgexec's own client holds a long conversation with defective
// calls over either API, and each request is one that the real API would take.
func TestServer_OwnClientHoldsALongConversation(t *testing.T) {
	t.Parallel()
	for _, provider := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			script := long
			if provider == llm.Anthropic { // whose ids are never empty
				script = strings.Replace(script, `id: "", `, "", 1)
			}
			m := start(t, script)
			client := ownClient(t, m.URL, provider, 0)
			req := &llm.Request{
				Messages:         []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Text: "Go."}}}},
				Tools:            []llm.Tool{{Name: "good"}, {Name: "malformed"}, {Name: "anonymous"}},
				CacheBreakpoints: true,
			}
			for i := range 20 {
				turn, err := client.Do(t.Context(), req, nil)
				if err != nil {
					t.Fatalf("turn %d: %v", i, err)
				}
				if turn.Text != fmt.Sprintf("Turn %d.", i) || turn.Stop != llm.StopToolCalls || len(turn.Calls) != 3 ||
					turn.Calls[0].Fault != "" || turn.Calls[1].Fault == "" || turn.Calls[2].ID == "" ||
					turn.Usage != (llm.Usage{Input: 100, CachedRead: 50, Output: 10, Reasoning: 2}) {
					t.Fatalf("turn %d: %+v", i, turn)
				}
				req.Messages = append(req.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
				for _, c := range turn.Calls {
					req.Messages = append(req.Messages, llm.Message{
						Role: llm.RoleTool, CallID: c.ID, Name: c.Name, IsError: c.Fault != "",
						Parts: []llm.Part{{Text: fmt.Sprintf("result %d", i)}},
					})
				}
			}
			turn, err := client.Do(t.Context(), req, nil)
			if err != nil || turn.Text != "Done." || turn.Stop != llm.StopEnd {
				t.Fatalf("%+v, %v", turn, err)
			}
			for _, r := range m.Requests() {
				if r.Problem != "" || r.Status != 200 || r.Attempt != 1 {
					t.Errorf("request %d: %d %s", r.Number, r.Status, r.Problem)
				}
			}
		})
	}
}

func ownClient(t *testing.T, url string, provider llm.Provider, idle time.Duration) *llm.Client {
	t.Helper()
	if provider == llm.OpenAI {
		url += "/v1"
	}
	client, err := llm.New(llm.Config{Provider: provider, BaseURL: url, APIKey: "any", Model: "fake-1", IdleTimeout: idle})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Each failure of a script is the failure that pgexec's own client takes it for.
func TestServer_OwnClientKnowsTheFailures(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {when: {user: rate_limited}, error: {status: 429, retry_after: 90s}}
  - {when: {user: quota_exceeded, api: openai}, error: {status: 429, type: insufficient_quota, code: insufficient_quota}}
  - {when: {user: quota_exceeded}, error: {status: 400, message: Your credit balance is too low to access the Anthropic API.}}
  - {when: {user: overloaded}, error: {status: 529}}
  - {when: {user: server}, error: {status: 500}}
  - {when: {user: bad_key}, error: {status: 401}}
  - {when: {user: forbidden}, error: {status: 403}}
  - {when: {user: unknown_model}, error: {status: 404}}
  - {when: {user: context_overflow}, error: {status: 400, code: context_length_exceeded, message: "prompt is too long: 9 tokens > 8 maximum"}}
  - {when: {user: incomplete}, reply: {text: Half of it, break: {with: cut, after: 1}}}
  - {when: {user: connection}, reply: {text: Half of it, break: {with: reset, after: 0}}}
  - {when: {user: idle}, reply: {text: Half of it, break: {with: stall, after: 1}}}
  - {when: {user: in-stream}, reply: {text: Half of it, break: {error: {type: overloaded_error, message: Overloaded}}}}
`)
	for _, provider := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		client, impatient := ownClient(t, m.URL, provider, 0), ownClient(t, m.URL, provider, 100*time.Millisecond)
		for _, kind := range []llm.Kind{
			llm.RateLimited, llm.QuotaExceeded, llm.Overloaded, llm.Server, llm.BadKey, llm.Forbidden, llm.UnknownModel,
			llm.ContextOverflow, llm.Incomplete, llm.Connection, llm.Idle, "in-stream", "no rule",
		} {
			want, asks := kind, client
			switch kind {
			case llm.Idle:
				asks = impatient
			case "in-stream":
				want = llm.Overloaded
			case "no rule":
				want = llm.BadRequest
			}
			req := &llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Text: string(kind)}}}}}
			_, err := asks.Do(t.Context(), req, nil)
			var got *llm.Error
			if !errors.As(err, &got) || got.Kind != want {
				t.Errorf("%s, %s: %v", provider, kind, err)
				continue
			}
			if kind == llm.RateLimited && got.RetryAfter != 90*time.Second {
				t.Errorf("%s: wait %s", provider, got.RetryAfter)
			}
		}
	}
}
