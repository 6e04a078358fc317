package fakemodel_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func anthropicClient(url string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("secret-key"), option.WithMaxRetries(0))
}

func anthropicParams(prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "fake-1", MaxTokens: 4096,
		System: []anthropic.TextBlockParam{{Text: "Be brief."}},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: "forecast", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}},
		}}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

func TestAnthropic_SDKReadsTheScript(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*testing.T, anthropic.Client, anthropic.MessageNewParams) *anthropic.Message{
		"streamed": streamAnthropic, "at once": askAnthropic,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, weather)
			client := anthropicClient(m.URL)
			params := anthropicParams("weather in Lima")
			first := ask(t, client, params)
			if len(first.Content) != 4 || first.StopReason != "tool_use" {
				t.Fatalf("got %s", first.RawJSON())
			}
			thinking, text, a, b := first.Content[0], first.Content[1], first.Content[2], first.Content[3]
			if thinking.Thinking != "Two places, two calls." || thinking.Signature == "" || text.Text != "Let me look." {
				t.Errorf("got %+v %+v", thinking, text)
			}
			if a.ID == b.ID || a.Name != "forecast" ||
				string(a.Input) != `{"city":"Oslo","days":2,"units":{"wind":"m/s"}}` || string(b.Input) != `{"city":"weather in Lima"}` {
				t.Errorf("calls: %s %s %s %s", a.ID, a.Input, b.ID, b.Input)
			}
			u := first.Usage
			if u.InputTokens != 30 || u.CacheReadInputTokens != 60 || u.CacheCreationInputTokens != 10 || u.OutputTokens != 20 {
				t.Errorf("usage: %s", u.RawJSON())
			}
			params.Messages = append(params.Messages, first.ToParam(), anthropic.NewUserMessage(
				anthropic.NewToolResultBlock(a.ID, "rain", false), anthropic.NewToolResultBlock(b.ID, "more rain", true)))
			second := ask(t, client, params)
			if second.Content[0].Text != "It says: rain\nmore rain" || second.StopReason != "end_turn" {
				t.Errorf("got %s", second.RawJSON())
			}
			if got := m.Requests(); len(got) != 2 || got[1].Turn != 1 || got[1].API != "anthropic" {
				t.Errorf("recorded %+v", got)
			}
		})
	}
}

func askAnthropic(t *testing.T, c anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	got, err := c.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func streamAnthropic(t *testing.T, c anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	stream := c.Messages.NewStreaming(t.Context(), p)
	var got anthropic.Message
	for stream.Next() {
		if err := got.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return &got
}

// C47: an assistant message whose thinking was changed on its way is refused.
func TestAnthropic_ThinkingComesBackUnchanged(t *testing.T) {
	t.Parallel()
	m := start(t, weather)
	client := anthropicClient(m.URL)
	params := anthropicParams("weather")
	first := streamAnthropic(t, client, params)
	first.Content[0].Thinking += " "
	params.Messages = append(params.Messages, anthropic.NewAssistantMessage(
		anthropic.NewThinkingBlock(first.Content[0].Signature, first.Content[0].Thinking+" "),
		anthropic.NewTextBlock("Let me look."),
	), anthropic.NewUserMessage(anthropic.NewTextBlock("and?")))
	_, err := client.Messages.New(t.Context(), params)
	if err == nil || !strings.Contains(err.Error(), "Invalid `signature` in `thinking` block") {
		t.Errorf("got %v", err)
	}
}

// C46: what the real API answers with 400 is answered so here, in its form.
func TestAnthropic_RefusesWhatTheAPIRefuses(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"hi"}`
		asked  = `{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}`
		a      = `{"type":"tool_result","tool_use_id":"a","content":"1"}`
		b      = `{"type":"tool_result","tool_use_id":"b","is_error":true,"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}`
		text   = `{"type":"text","text":"go on"}`
		cached = `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`
	)
	answered := func(blocks ...string) string {
		return user + "," + asked + `,{"role":"user","content":[` + strings.Join(blocks, ",") + `]}`
	}
	m := start(t, `rules: [{reply: {text: fine}}]`)
	for _, tc := range []struct{ name, messages, more, want string }{
		{"valid", answered(a, b), "", ""},
		{"valid with text after the results", answered(b, a, text), "", ""},
		{"valid to be continued", user + `,{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}`, "", ""},
		{"valid going on after a pause", user + `,{"role":"assistant","content":"so far"},{"role":"assistant","content":"and so on"},` + user, "", ""},
		{"call without result before another answer", user + "," + asked + `,{"role":"assistant","content":"and so on"},{"role":"user","content":[` + a + "," + b + "]}", "", "without `tool_result` blocks immediately after: a, b"},
		{"call without result", answered(a), "", "without `tool_result` blocks immediately after: b"},
		{"call without any answer", user + "," + asked, "", "without `tool_result` blocks immediately after: a, b"},
		{"text before the results", answered(text, a, b), "", "without `tool_result` blocks immediately after"},
		{"result of another call", answered(a, b, strings.Replace(a, `"a"`, `"c"`, 1)), "", "unexpected `tool_use_id` found in `tool_result` blocks: c"},
		{"two results of a call", answered(a, b, a), "", "multiple `tool_result` blocks with id: a"},
		{"result of nothing", `{"role":"user","content":[` + a + `]}`, "", "unexpected `tool_use_id`"},
		{"two users in a row", user + "," + user, "", "roles must alternate"},
		{"assistant first", asked, "", "first message must use the \"user\" role"},
		{"system as a message", user + `,{"role":"system","content":"x"}`, "", "Input should be 'user' or 'assistant'"},
		{"same id twice", answered(a, b) + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[` + a + `]}`, "", "ids must be unique"},
		{"input that is no object", user + "," + strings.Replace(asked, `"input":{}`, `"input":"{}"`, 1), "", "Input should be a valid dictionary"},
		{"empty text", user + `,{"role":"assistant","content":[{"type":"text","text":""}]}`, "", "text content blocks must be non-empty"},
		{"empty message", user + `,{"role":"assistant","content":[]},` + user, "", "must have non-empty content"},
		{"thinking without signature", user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]},` + user, "", "thinking.signature: Field required"},
		{"call of a user", `{"role":"user","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`, "", "can only be in `assistant` messages"},
		{"five breakpoints", `{"role":"user","content":[` + strings.Join([]string{cached, cached, cached, cached, cached}, ",") + `]}`, "", "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		{"no messages", "", "", "at least one message is required"},
		{"tool without schema", user, `,"tools":[{"name":"f"}]`, "input_schema: Field required"},
		{"choice without tools", user, `,"tool_choice":{"type":"auto"}`, "may only be specified while providing `tools`"},
		{"small budget", user, `,"thinking":{"type":"enabled","budget_tokens":10}`, "greater than or equal to 1024"},
		{"budget above max_tokens", user, `,"thinking":{"type":"enabled","budget_tokens":4096}`, "`max_tokens` must be greater"},
	} {
		body := `{"model":"fake-1","max_tokens":4096,"messages":[` + tc.messages + `]` + tc.more + `}`
		checkRefusal(t, m.URL, tc.name, body, tc.want)
	}
	checkRefusal(t, m.URL, "no max_tokens", `{"model":"fake-1","messages":[`+user+`]}`, "max_tokens: Field required")
	if status, answer := post(t, m.URL+"/v1/messages", `{}`, nil); status != 400 || !strings.Contains(answer, "anthropic-version: header is required") {
		t.Errorf("without version: %d %s", status, answer)
	}
}

func checkRefusal(t *testing.T, url, name, body, want string) {
	t.Helper()
	status, answer := post(t, url+"/v1/messages", body, map[string]string{"Anthropic-Version": "2023-06-01"})
	if want == "" {
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		return
	}
	var got struct {
		Type  string
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusBadRequest || got.Type != "error" || got.Error.Type != "invalid_request_error" || !strings.Contains(got.Error.Message, want) {
		t.Errorf("%s: %d %s; want %q", name, status, answer, want)
	}
}

func TestAnthropic_ErrorsHaveItsForm(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {when: {user: busy}, error: {status: 529, retry_after: 3s}}
  - {when: {user: refuse}, reply: {text: I will not., stop: refusal}}
  - {when: {user: broken}, reply: {text: Half a, chunk: 4, break: {after: 1, error: {type: overloaded_error, message: Overloaded}}}}
  - {error: {status: 404, message: no such model}}
`)
	client := anthropicClient(m.URL)
	for user, want := range map[string]struct {
		status    int
		errorType string
	}{"busy": {529, "overloaded_error"}, "other": {404, "not_found_error"}} {
		_, err := client.Messages.New(t.Context(), anthropicParams(user))
		var got *anthropic.Error
		if !errors.As(err, &got) || got.StatusCode != want.status || string(got.Type()) != want.errorType {
			t.Errorf("%s: %v", user, err)
			continue
		}
		if user == "busy" && got.Response.Header.Get("Retry-After") != "3" {
			t.Errorf("header %v", got.Response.Header)
		}
	}
	refusal := streamAnthropic(t, client, anthropicParams("refuse"))
	if refusal.StopReason != "refusal" || refusal.StopDetails.Explanation != "I will not." {
		t.Errorf("got %s", refusal.RawJSON())
	}
	stream := client.Messages.NewStreaming(t.Context(), anthropicParams("broken"))
	for stream.Next() {
	}
	var got *anthropic.Error
	if err := stream.Err(); !errors.As(err, &got) || string(got.Type()) != "overloaded_error" {
		t.Errorf("in the stream: %v", err)
	}
}
