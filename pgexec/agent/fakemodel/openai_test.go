package fakemodel_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// weather is a script for both APIs: two calls at once, then an answer.
const weather = `
rules:
  - when: {prompt: weather, turn: 0}
    reply:
      thinking: Two places, two calls.
      text: Let me look.
      calls:
        - {name: forecast, args: {city: Oslo, days: 2, units: {wind: m/s}}}
        - {name: forecast, args: {city: "{{last_user}}"}}
      usage: {input: 100, cached: 60, cache_write: 10, output: 20, reasoning: 5}
  - when: {turn: 1, result: rain}
    reply: {text: "It says: {{tool_result}}", chunk: 3}
`

func openaiClient(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("secret-key"), option.WithMaxRetries(0))
}

func openaiTools() []openai.ChatCompletionToolUnionParam {
	return []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "forecast", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{}},
	})}
}

func TestOpenAI_SDKReadsTheScript(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*testing.T, openai.Client, openai.ChatCompletionNewParams) *openai.ChatCompletion{
		"streamed": streamOpenAI, "at once": askOpenAI,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, weather)
			client := openaiClient(m.URL)
			params := openai.ChatCompletionNewParams{
				Model: "fake-1", Tools: openaiTools(),
				Messages: []openai.ChatCompletionMessageParamUnion{
					openai.SystemMessage("Be brief."), openai.UserMessage("weather in Lima"),
				},
			}
			first := ask(t, client, params)
			msg := first.Choices[0].Message
			if msg.Content != "Let me look." || first.Choices[0].FinishReason != "tool_calls" || len(msg.ToolCalls) != 2 {
				t.Fatalf("got %s", first.RawJSON())
			}
			a, b := msg.ToolCalls[0], msg.ToolCalls[1]
			if a.ID == b.ID || a.Function.Name != "forecast" ||
				a.Function.Arguments != `{"city":"Oslo","days":2,"units":{"wind":"m/s"}}` || b.Function.Arguments != `{"city":"weather in Lima"}` {
				t.Errorf("calls: %+v %+v", a, b)
			}
			u := first.Usage
			if u.PromptTokens != 100 || u.CompletionTokens != 20 || u.TotalTokens != 120 ||
				u.PromptTokensDetails.CachedTokens != 60 || u.CompletionTokensDetails.ReasoningTokens != 5 {
				t.Errorf("usage: %+v", u)
			}
			params.Messages = append(params.Messages, msg.ToParam(),
				openai.ToolMessage("rain", a.ID), openai.ToolMessage("more rain", b.ID))
			second := ask(t, client, params)
			if c := second.Choices[0]; c.Message.Content != "It says: rain\nmore rain" || c.FinishReason != "stop" {
				t.Errorf("got %+v", c)
			}
			if got := m.Requests(); len(got) != 2 || got[1].Turn != 1 || got[0].Status != 200 || !strings.Contains(got[1].Body, "more rain") {
				t.Errorf("recorded %+v", got)
			}
		})
	}
}

func askOpenAI(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	t.Helper()
	got, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func streamOpenAI(t *testing.T, c openai.Client, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	t.Helper()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk %s does not fit", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return &acc.ChatCompletion
}

// C46: what the real API answers with 400 is answered so here, in its form.
func TestOpenAI_RefusesWhatTheAPIRefuses(t *testing.T) {
	t.Parallel()
	const (
		user  = `{"role":"user","content":"hi"}`
		asked = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{"}}]}`
		a, b  = `{"role":"tool","tool_call_id":"a","content":"1"}`, `{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"2"}]}`
	)
	m := start(t, `rules: [{reply: {text: fine}}]`)
	for _, tc := range []struct{ name, messages, more, want string }{
		{"valid", user + "," + asked + "," + b + "," + a + "," + user, "", ""},
		{"valid with images after all results", user + "," + asked + "," + a + "," + b + `,{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`, "", ""},
		{"call without result", user + "," + asked + "," + a, "", "did not have response messages: b"},
		{"something between call and result", user + "," + asked + "," + a + "," + user + "," + b, "", "did not have response messages: b"},
		{"result of nothing", user + "," + a, "", "must be a response to a preceeding message"},
		{"result of another call", user + "," + asked + "," + a + "," + strings.Replace(b, `"b"`, `"c"`, 1), "", "'tool_call_id' of 'c' not found"},
		{"two results of a call", user + "," + asked + "," + a + "," + a, "", "'a' is answered twice"},
		{"image in a result", user + "," + asked + `,{"role":"tool","tool_call_id":"a","content":[{"type":"image_url","image_url":{"url":"https://x"}}]},` + b, "", "'content' of role 'tool'"},
		{"empty id", user + "," + strings.Replace(asked, `"a"`, `""`, 1), "", "empty string"},
		{"same id twice", user + "," + strings.Replace(asked, `"b"`, `"a"`, 1) + "," + a, "", "Duplicate"},
		{"no calls", user + `,{"role":"assistant","content":null,"tool_calls":[]}`, "", "empty array"},
		{"arguments that are no text", user + "," + strings.Replace(asked, `"{}"`, `{}`, 1), "", "could not parse"},
		{"nothing said", user + `,{"role":"assistant","content":null}`, "", "got null"},
		{"unknown role", `{"role":"robot","content":"x"}`, "", "Invalid value: 'robot'"},
		{"no messages", "", "", "empty array"},
		{"choice without tools", user, `,"tool_choice":"auto"`, "only allowed when 'tools' are specified"},
		{"no tools in a list", user, `,"tools":[]`, "empty array"},
		{"tool name", user, `,"tools":[{"type":"function","function":{"name":"a b"}}]`, "does not match pattern"},
		{"schema without type", user, `,"tools":[{"type":"function","function":{"name":"a","parameters":{"properties":{}}}}]`, "got 'type: \"\"'"},
		{"schema without properties", user, `,"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}]`, "object schema missing properties"},
		{"usage without stream", user, `,"stream_options":{"include_usage":true}`, "only allowed when 'stream' is enabled"},
	} {
		body := `{"model":"fake-1","messages":[` + tc.messages + `]` + tc.more + `}`
		status, answer := post(t, m.URL+"/chat/completions", body, nil)
		if tc.want == "" {
			if status != http.StatusOK {
				t.Errorf("%s: %d %s", tc.name, status, answer)
			}
			continue
		}
		var got struct {
			Error struct{ Message, Type string }
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusBadRequest || got.Error.Type != "invalid_request_error" || !strings.Contains(got.Error.Message, tc.want) {
			t.Errorf("%s: %d %s; want %q", tc.name, status, answer, tc.want)
		}
	}
}

func TestOpenAI_ErrorsHaveItsForm(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {when: {user: busy}, error: {status: 429, retry_after: 1.5s}}
  - {when: {user: broke}, error: {status: 429, type: insufficient_quota, code: insufficient_quota, message: Pay first.}}
  - {when: {user: custom}, error: {status: 400, body: '{"error":{"code":"tool_use_failed","failed_generation":"f("}}', headers: {X-Groq-Region: north}}}
  - {error: {status: 503}}
`)
	client := openaiClient(m.URL)
	for user, want := range map[string]openai.Error{
		"busy":   {StatusCode: 429, Type: "requests", Code: "rate_limit_exceeded"},
		"broke":  {StatusCode: 429, Type: "insufficient_quota", Code: "insufficient_quota", Message: "Pay first."},
		"custom": {StatusCode: 400, Code: "tool_use_failed"},
		"other":  {StatusCode: 503, Type: "server_error"},
	} {
		_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
			Model: "fake-1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(user)},
		})
		var got *openai.Error
		if !errors.As(err, &got) {
			t.Fatalf("%s: %v", user, err)
		}
		if got.StatusCode != want.StatusCode || got.Type != want.Type || got.Code != want.Code || want.Message != "" && got.Message != want.Message {
			t.Errorf("%s: %s", user, got.RawJSON())
		}
		h := got.Response.Header
		if user == "busy" && (h.Get("Retry-After") != "2" || h.Get("Retry-After-Ms") != "1500") || user == "custom" && h.Get("X-Groq-Region") != "north" {
			t.Errorf("%s: header %v", user, h)
		}
	}
}

// The defects of compatible servers that a script can have.
func TestOpenAI_QuirksOfCalls(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - reply:
      calls:
        - {name: f, raw_args: '{"city": ', id: "", index: 0}
        - {name: g, id: same, index: 0}
        - {name: h, index: missing}
      stop: stop
`)
	_, answer := post(t, m.URL+"/v1/chat/completions", `{"model":"x","stream":true,"messages":[{"role":"user","content":"hi"}]}`, nil)
	var got [][3]any // id, name, index
	for _, data := range events(answer) {
		var chunk struct {
			Choices []struct {
				Delta struct {
					ToolCalls []struct {
						ID       *string
						Index    *float64
						Function struct{ Name string }
					} `json:"tool_calls"`
				}
			}
		}
		if json.Unmarshal([]byte(data), &chunk) != nil {
			continue // [DONE]
		}
		for _, c := range chunk.Choices[0].Delta.ToolCalls {
			if c.ID == nil {
				continue
			}
			var index any
			if c.Index != nil {
				index = *c.Index
			}
			got = append(got, [3]any{*c.ID, c.Function.Name, index})
		}
	}
	if len(got) != 3 || !reflect.DeepEqual(got[:2], [][3]any{{"", "f", 0.0}, {"same", "g", 0.0}}) || got[2][2] != nil {
		t.Errorf("got %v", got)
	}
	if !strings.Contains(answer, `{\"city\": `) || !strings.Contains(answer, `"finish_reason":"stop"`) {
		t.Errorf("got %s", answer)
	}
}
