package llm_test

import (
	"errors"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func TestOpenAI_WhatTheServerAddsIsSentBack_C47(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deltas []string
		want   string
	}{
		"text": {
			[]string{delta(`{"role":"assistant","content":"","refusal":null}`), delta(`{"content":"a\u003cb "}`), delta(`{"content":"\ud83d"}`), delta(`{"content":"\ude00"}`)},
			`{"role":"assistant","content":"a\u003cb \ud83d\ude00"}`,
		},
		"reasoning_content": {
			[]string{
				delta(`{"role":"assistant","content":null,"reasoning_content":""}`), delta(`{"content":null,"reasoning_content":"I "}`),
				delta(`{"content":null,"reasoning_content":"think"}`), delta(`{"content":"So","reasoning_content":null}`),
			},
			`{"role":"assistant","content":"So","reasoning_content":"I think"}`,
		},
		"reasoning_details in pieces": {
			[]string{
				delta(`{"reasoning":"Let ","reasoning_details":[{"type":"reasoning.text","text":"Let ","format":"f1","index":0}]}`),
				delta(`{"reasoning":"me","reasoning_details":[{"type":"reasoning.text","text":"me","format":"f1","index":0}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.text","signature":"c2ln","format":"f1","index":0}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"ZGF0YQ==","index":1}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.text","text":"More","index":2}]}`),
				delta(`{"content":"ok"}`),
			},
			`{"role":"assistant","content":"ok","reasoning":"Let me","reasoning_details":[{"type":"reasoning.text","text":"Let me","format":"f1","index":0,"signature":"c2ln"},{"type":"reasoning.encrypted","data":"ZGF0YQ==","index":1},{"type":"reasoning.text","text":"More","index":2}]}`,
		},
		"signature of a call": {
			[]string{called(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln/+="}}}`)},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln/+="}}}]}`,
		},
		"content in parts": {
			[]string{
				delta(`{"content":""}`), delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`),
				delta(`{"content":"a"}`), delta(`{"content":"b"}`),
			},
			`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"ab"}]}`,
		},
		"spelling of arguments": {
			[]string{called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{ \"x\": 1.0e2,"}}`), called(`{"index":0,"function":{"arguments":" \"y\":\"\\u00e9\\ud83d\"}"}}`)},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{ \"x\": 1.0e2, \"y\":\"\\u00e9\\ud83d\"}"}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, llm.OpenAI, hello(), chunks(append(tc.deltas, finish("stop"))...))
			if err != nil {
				t.Fatal(err)
			}
			if string(turn.Message) != tc.want {
				t.Errorf("message is %s\nwant       %s", turn.Message, tc.want)
			}
		})
	}
}

func TestOpenAI_EndsAsTheAnswerShowsNotAsItSays(t *testing.T) {
	t.Parallel()
	call := called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`)
	text := delta(`{"content":"hi"}`)
	for name, tc := range map[string]struct {
		stream []string
		want   llm.Stop
	}{
		"stop":                         {[]string{text, finish("stop")}, llm.StopEnd},
		"stop with a call":             {[]string{call, finish("stop")}, llm.StopToolCalls},
		"tool_calls without one":       {[]string{text, finish("tool_calls")}, llm.StopEnd},
		"length":                       {[]string{text, finish("length")}, llm.StopMaxTokens},
		"content_filter":               {[]string{text, finish("content_filter")}, llm.StopContentFilter},
		"a word of the server's own":   {[]string{text, finish("eos")}, llm.StopEnd},
		"twice":                        {[]string{call, finish("tool_calls"), finish("tool_calls")}, llm.StopToolCalls},
		"null after it":                {[]string{call, finish("tool_calls"), delta(`{}`)}, llm.StopToolCalls},
		"refusal":                      {[]string{delta(`{"refusal":"I "}`), delta(`{"refusal":"won't"}`), finish("stop")}, llm.StopRefusal},
		"other choices are not ours":   {[]string{text, `{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`, finish("stop")}, llm.StopEnd},
		"empty calls":                  {[]string{delta(`{"content":"hi","tool_calls":[]}`), finish("stop")}, llm.StopEnd},
		"everything in the last chunk": {[]string{`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`}, llm.StopEnd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, llm.OpenAI, hello(), chunks(tc.stream...))
			if err != nil {
				t.Fatal(err)
			}
			if turn.Stop != tc.want {
				t.Errorf("stop is %s, want %s", turn.Stop, tc.want)
			}
			if want := map[bool]string{true: "I won't"}[name == "refusal"]; turn.Refusal != want {
				t.Errorf("refusal is %q, want %q", turn.Refusal, want)
			}
		})
	}
}

func TestStream_WithoutEndMarkerIsNeverASuccess_C50(t *testing.T) {
	t.Parallel()
	call := called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`)
	for name, tc := range map[string]struct {
		provider llm.Provider
		body     string
	}{
		"openai, cut":                 {llm.OpenAI, "data: " + call + "\n\n"},
		"openai, only DONE":           {llm.OpenAI, chunks(call)},
		"openai, nothing":             {llm.OpenAI, ""},
		"openai, within the last":     {llm.OpenAI, "data: " + call + "\n\ndata: " + finish("stop")},
		"anthropic, cut":              {llm.Anthropic, events(append([]string{`{"type":"message_start","message":{"usage":{}}}`}, block(0, `{"type":"text","text":""}`, `{"type":"text_delta","text":"hi"}`)...)...)},
		"anthropic, no message_stop":  {llm.Anthropic, events(`{"type":"message_start","message":{}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`)},
		"anthropic, nothing but ping": {llm.Anthropic, events(`{"type":"ping"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ask(t, tc.provider, hello(), tc.body)
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.Incomplete || e.Permanent() {
				t.Fatalf("got %v, want a retryable error of kind %s", err, llm.Incomplete)
			}
		})
	}
}

func TestOpenAI_UsageIsNormalised(t *testing.T) {
	t.Parallel()
	text := delta(`{"content":"hi"}`)
	for name, tc := range map[string]struct {
		stream []string
		want   llm.Usage
	}{
		"in a chunk of its own": {
			[]string{text, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":80,"cache_write_tokens":5},"completion_tokens_details":{"reasoning_tokens":30}}}`},
			llm.Usage{Input: 100, CachedRead: 80, CacheWrite: 5, Output: 50, Reasoning: 30},
		},
		"reasoning counted beside the output": {
			[]string{text, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":180,"completion_tokens_details":{"reasoning_tokens":30}}}`},
			llm.Usage{Input: 100, Output: 80, Reasoning: 30},
		},
		"what was cached counted beside the input": {
			[]string{text, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":80,"cache_write_tokens":5}}}`},
			llm.Usage{Input: 95, CachedRead: 80, CacheWrite: 5, Output: 50},
		},
		"details are null": {
			[]string{text, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":null}}`},
			llm.Usage{Input: 100, Output: 50},
		},
		"so far, with each chunk": {
			[]string{`{"choices":[{"delta":{"content":"hi"}}],"usage":{"prompt_tokens":100,"completion_tokens":1}}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":2}}`},
			llm.Usage{Input: 100, Output: 2},
		},
		"x_groq": {
			[]string{text, `{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":7,"completion_tokens":3}}}`},
			llm.Usage{Input: 7, Output: 3},
		},
		"none": {
			[]string{text, finish("stop")},
			llm.Usage{Input: 2, Output: 9, Estimated: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, llm.OpenAI, hello(), chunks(tc.stream...))
			if err != nil {
				t.Fatal(err)
			}
			if turn.Usage != tc.want {
				t.Errorf("usage is %+v, want %+v", turn.Usage, tc.want)
			}
		})
	}
}
