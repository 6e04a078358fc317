package llm_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func assistant(t *testing.T, p llm.Provider, text string, calls ...llm.Call) llm.Message {
	t.Helper()
	raw, err := llm.AssistantMessage(p, text, calls)
	if err != nil {
		t.Fatal(err)
	}
	return llm.Message{Role: llm.RoleAssistant, Raw: raw}
}

func call(id, name, args string) llm.Call {
	return llm.Call{ID: id, Name: name, Args: json.RawMessage(args)}
}

// full is a request of everything there is.
func full(t *testing.T, p llm.Provider) *llm.Request {
	half, no := 0.5, false
	return &llm.Request{
		System: "Be <brief>.",
		Messages: []llm.Message{
			{Role: llm.RoleUser, Parts: []llm.Part{{Text: "What is it?"}, {Image: &llm.Image{URL: "https://example.org/a.png"}}}},
			assistant(t, p, "Let me look.", call("c1", "photo", `{"n": 1}`), call("c2", "read", `{}`)),
			result("c2", "two"),
			{Role: llm.RoleTool, CallID: "c1", Name: "photo", IsError: true, Parts: []llm.Part{{Text: "one"}, {Image: &llm.Image{MediaType: "image/png", Data: []byte{1, 2, 3}}}}},
			said("Well?"),
		},
		Tools: []llm.Tool{
			{Name: "read", Description: "Reads."},
			{Name: "photo", Schema: json.RawMessage(`{"type": "object", "properties": {"n": {"type": "integer"}}}`)},
		},
		ToolChoice:       llm.ChoiceRequired,
		ParallelCalls:    &no,
		MaxTokens:        100,
		Temperature:      &half,
		TopP:             &half,
		Effort:           "low",
		Extra:            json.RawMessage(`{"top_p":null,"temperature":1,"seed":7}`),
		CacheBreakpoints: true,
		CacheKey:         "run 1",
	}
}

func TestEncode_OpenAI(t *testing.T) {
	t.Parallel()
	body, err := llm.Encode(llm.OpenAI, "gpt", full(t, llm.OpenAI))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"model":"gpt","tools":[` +
			`{"type":"function","function":{"name":"photo","description":"","parameters":{"type": "object", "properties": {"n": {"type": "integer"}}}}},` +
			`{"type":"function","function":{"name":"read","description":"Reads.","parameters":{"type":"object","properties":{}}}}],"messages":[`,
		`{"role":"system","content":"Be <brief>."},`,
		`{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]},`,
		`{"role":"assistant","content":"Let me look.","tool_calls":[{"id":"c1","type":"function","function":{"name":"photo","arguments":"{\"n\": 1}"}},{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]},`,
		`{"role":"tool","tool_call_id":"c1","content":"one"},`,
		`{"role":"tool","tool_call_id":"c2","content":"two"},`,
		`{"role":"user","content":[{"type":"text","text":"Result of call c1:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]},`,
		`{"role":"user","content":"Well?"}`,
		`],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":100,"temperature":1,"reasoning_effort":"low","prompt_cache_key":"run 1","tool_choice":"required","parallel_tool_calls":false,"seed":7}`,
	}
	if string(body) != strings.Join(want, "") {
		t.Errorf("request is\n%s\nwant\n%s", body, strings.Join(want, ""))
	}
}

func TestEncode_Anthropic(t *testing.T) {
	t.Parallel()
	body, err := llm.Encode(llm.Anthropic, "claude", full(t, llm.Anthropic))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"model":"claude","system":[{"type":"text","text":"Be <brief>.","cache_control":{"type":"ephemeral"}}],"tools":[`,
		`{"name":"photo","description":"","input_schema":{"type": "object", "properties": {"n": {"type": "integer"}}}},`,
		`{"name":"read","description":"Reads.","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral"}}],"messages":[`,
		`{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}}]},`,
		`{"role":"assistant","content":[{"type":"text","text":"Let me look."},{"type":"tool_use","id":"c1","name":"photo","input":{"n": 1}},{"type":"tool_use","id":"c2","name":"read","input":{}}]},`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}}],"is_error":true},`,
		`{"type":"tool_result","tool_use_id":"c2","content":"two"},{"type":"text","text":"Well?"}]}`,
		`],"stream":true,"max_tokens":100,"cache_control":{"type":"ephemeral"},"temperature":1,"output_config":{"effort":"low"},"tool_choice":{"type":"any","disable_parallel_tool_use":true},"seed":7}`,
	}
	if string(body) != strings.Join(want, "") {
		t.Errorf("request is\n%s\nwant\n%s", body, strings.Join(want, ""))
	}
}

func TestEncode_RefusesWhatTheProviderWould_C46(t *testing.T) {
	t.Parallel()
	two := func(t *testing.T, p llm.Provider) []llm.Message {
		return []llm.Message{said("Hi"), assistant(t, p, "", call("c1", "f", `{}`), call("c2", "g", `{}`))}
	}
	for name, tc := range map[string]struct {
		change func(r *llm.Request)
		want   string
	}{
		"no result": {func(r *llm.Request) { r.Messages = append(r.Messages, result("c1", "1")) }, `message 2: call "c2" of tool "g" has no result`},
		"two results": {func(r *llm.Request) {
			r.Messages = append(r.Messages, result("c1", "1"), result("c1", "1"), result("c2", "2"))
		}, `message 2: call "c1" has two results`},
		"result of nothing": {func(r *llm.Request) {
			r.Messages = append(r.Messages, result("c1", "1"), result("c2", "2"), result("c3", "3"))
		}, `there is a result of call "c3"`},
		"result too late":    {func(r *llm.Request) { r.Messages = append(r.Messages, result("c1", "1"), said("x"), result("c2", "2")) }, `call "c2" of tool "g" has no result`},
		"result at the head": {func(r *llm.Request) { r.Messages = []llm.Message{result("c1", "1")} }, `message 1: the result of call "c1" does not follow`},
		"no messages":        {func(r *llm.Request) { r.Messages = nil }, "there are no messages"},
		"empty message":      {func(r *llm.Request) { r.Messages = []llm.Message{said(" ")} }, "message 1: a user's message has neither text nor image"},
		"no image": {func(r *llm.Request) {
			r.Messages = []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Image: &llm.Image{}}}}}
		}, "an image has neither data nor URL"},
		"no media type": {func(r *llm.Request) {
			r.Messages = []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Image: &llm.Image{Data: []byte{1}}}}}}
		}, "an image has no media type"},
		"unknown role":      {func(r *llm.Request) { r.Messages[0].Role = "system" }, `message 1: role is "system", must be`},
		"broken message":    {func(r *llm.Request) { r.Messages[1].Raw = json.RawMessage(`{"role":`) }, "message 2: "},
		"another's message": {func(r *llm.Request) { r.Messages[1].Raw = json.RawMessage(`{"role":"user","content":"x"}`) }, `message 2: role is "user", must be "assistant"`},
		"two tools":         {func(r *llm.Request) { r.Tools = []llm.Tool{{Name: "f"}, {Name: "f"}} }, `two tools have the name "f"`},
		"no name":           {func(r *llm.Request) { r.Tools = []llm.Tool{{}} }, "a tool has no name"},
		"no schema":         {func(r *llm.Request) { r.Tools = []llm.Tool{{Name: "f", Schema: json.RawMessage(`[]`)}} }, `the schema of tool "f" is no JSON object: []`},
		"reserved":          {func(r *llm.Request) { r.Messages, r.Extra = r.Messages[:1], json.RawMessage(`{"stream":false}`) }, `extra has the field "stream"`},
		"no object":         {func(r *llm.Request) { r.Messages, r.Extra = r.Messages[:1], json.RawMessage(`{"a":1}}`) }, `extra is no JSON object`},
		"choice":            {func(r *llm.Request) { r.Messages, r.ToolChoice = r.Messages[:1], "any" }, `tool choice is "any", must be`},
		"tokens":            {func(r *llm.Request) { r.Messages, r.MaxTokens = r.Messages[:1], -1 }, "max tokens is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
				r := &llm.Request{Messages: two(t, p)}
				tc.change(r)
				_, err := llm.Encode(p, "m", r)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q", p, err, tc.want)
				}
			}
		})
	}
}

func TestEncode_ToolsOfTheProviderComeAfterOurs(t *testing.T) {
	t.Parallel()
	for p, want := range map[llm.Provider]string{
		llm.OpenAI:    `{"model":"m","tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}},{"type": "own"}],"messages":`,
		llm.Anthropic: `{"model":"m","tools":[{"name":"f","description":"","input_schema":{"type":"object","properties":{}}},{"type": "own"}],"messages":`,
	} {
		r := hello()
		r.Tools = []llm.Tool{{Name: "f"}}
		r.Extra = json.RawMessage(`{"tools":[{"type": "own"}]}`)
		body, err := llm.Encode(p, "m", r)
		if err != nil || !strings.HasPrefix(string(body), want) || strings.Count(string(body), "own") != 1 {
			t.Errorf("%s: got %s, %v\nwant %s…", p, body, err, want)
		}
		r.Extra = json.RawMessage(`{"tools":{}}`)
		if _, err := llm.Encode(p, "m", r); err == nil || !strings.Contains(err.Error(), "tools that are no list: {}") {
			t.Errorf("%s: got %v", p, err)
		}
	}
}

// An answer that was cut off in the middle of a character can be sent back. The rest keeps its bytes.
func TestEncode_HalfACharacterIsNotSentBack_C46(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`so \ud83d\ude00 \u00fc \\ud83d`: `so \ud83d\ude00 \u00fc \\ud83d`,
		`so \ud83d`:                      `so �`,
		`so \ud83dx`:                     `so �x`,
		`\ude00\ud83d\ude00`:             `�😀`,
		"so \xf0\x9f":                    `so ��`,
	} {
		for p, raw := range map[llm.Provider]string{
			llm.OpenAI:    `{"role": "assistant", "content": "` + said + `", "x": "\u003c"}`,
			llm.Anthropic: `{"role": "assistant", "content": [{"type": "text", "text": "` + said + `", "x": "\u003c"}]}`,
		} {
			r := hello()
			r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: json.RawMessage(raw)}, hello().Messages[0])
			body, err := llm.Encode(p, "m", r)
			if err != nil || !strings.Contains(string(body), `"`+want+`", "x": "\u003c"}`) {
				t.Errorf("%s: %s is sent as %s, %v", p, said, body, err)
			}
		}
	}
}

func TestEncode_SchemasHaveWhatProvidersDemand(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:                         `{"type":"object","properties":{}}`,
		`{"type": "object"}`:       `{"type":"object","properties":{}}`,
		`{}`:                       `{"type":"object","properties":{}}`,
		`{"properties": {"a": 1}}`: `{"properties":{"a": 1},"type":"object"}`,
		`{"type":"object", "properties": {"a": {}}, "required": ["a"]}`: `{"type":"object", "properties": {"a": {}}, "required": ["a"]}`,
	} {
		for p, field := range map[llm.Provider]string{llm.OpenAI: `"parameters":`, llm.Anthropic: `"input_schema":`} {
			r := hello()
			r.Tools = []llm.Tool{{Name: "f", Schema: json.RawMessage(schema)}}
			body, err := llm.Encode(p, "m", r)
			if err != nil || !strings.Contains(string(body), field+want+"}") {
				t.Errorf("%s: schema %s becomes %s, %v", p, schema, body, err)
			}
		}
	}
}

func TestEncode_WithoutToolsNothingIsChosen(t *testing.T) {
	t.Parallel()
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		r, no := hello(), false
		r.ToolChoice, r.ParallelCalls = llm.ChoiceNone, &no
		body, err := llm.Encode(p, "m", r)
		if err != nil || strings.Contains(string(body), "tool") {
			t.Errorf("%s: got %s, %v", p, body, err)
		}
	}
}

func TestEncode_APausedTurnIsSentBackUnchanged(t *testing.T) {
	t.Parallel()
	paused := `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q": "<x>"}}]}`
	r := hello()
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: json.RawMessage(paused)})
	body, err := llm.Encode(llm.Anthropic, "m", r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(body), paused+"]") {
		t.Errorf("request is %s", body)
	}
}

func TestEncode_AnImageAloneIsAnnounced(t *testing.T) {
	t.Parallel()
	r := hello()
	r.Messages = append(r.Messages, assistant(t, llm.OpenAI, "", call("c1", "photo", `{}`)),
		llm.Message{Role: llm.RoleTool, CallID: "c1", Parts: []llm.Part{{Image: &llm.Image{URL: "https://example.org/a.png"}}}})
	body, err := llm.Encode(llm.OpenAI, "m", r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"photo","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"The result is an image: see the next message of the user."},` +
		`{"role":"user","content":[{"type":"text","text":"Result of call c1:"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]}]`
	if !strings.Contains(string(body), want) {
		t.Errorf("request is %s\nwithout    %s", body, want)
	}
}

func TestEncode_UnknownProviderIsNamed(t *testing.T) {
	t.Parallel()
	_, err := llm.Encode("gemini", "m", hello())
	if err == nil || !strings.Contains(err.Error(), `provider is "gemini"`) {
		t.Errorf("got %v", err)
	}
}
