package llm_test

import (
	"slices"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

const (
	thinkingStart = `{"type":"thinking","thinking":"","signature":""}`
	textStart     = `{"type":"text","text":""}`
)

func TestAnthropic_BlocksAreKeptByteForByte_C47(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream []string
		want   string // of the content
	}{
		"thinking and signature": {
			slices.Concat(
				block(0, thinkingStart, `{"type":"thinking_delta","thinking":"Let me \u2028<think>"}`, `{"type":"thinking_delta","thinking":" \ud83d"}`, `{"type":"thinking_delta","thinking":"\ude00"}`, `{"type":"signature_delta","signature":"EqE/+=="}`),
				block(1, `{"type":"redacted_thinking","data":"ZGF0YQ=="}`),
				block(2, textStart, `{"type":"text_delta","text":"Hi"}`)),
			`[{"type":"thinking","thinking":"Let me \u2028<think> \ud83d\ude00","signature":"EqE/+=="},{"type":"redacted_thinking","data":"ZGF0YQ=="},{"type":"text","text":"Hi"}]`,
		},
		"blocks of the provider's tools, and of types not known": {
			slices.Concat(
				block(0, `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`, inputDelta(`{"query":`), inputDelta(` "x"}`)),
				block(1, `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u","encrypted_content":"Eo8="}]}`),
				block(2, `{"type":"hologram","light":"","n":1.50}`, `{"type":"hologram_delta","light":"a"}`, `{"type":"hologram_delta","light":"b"}`)),
			`[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query": "x"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u","encrypted_content":"Eo8="}]},{"type":"hologram","light":"ab","n":1.50}]`,
		},
		"citations": {
			block(0, `{"type":"text","text":"","citations":[]}`, `{"type":"citations_delta","citation":{"type":"char_location","cited_text":"a"}}`, `{"type":"text_delta","text":"A"}`, `{"type":"citations_delta","citation":{"type":"char_location","cited_text":"b"}}`),
			`[{"type":"text","text":"A","citations":[{"type":"char_location","cited_text":"a"},{"type":"char_location","cited_text":"b"}]}]`,
		},
		"calls": {
			slices.Concat(
				block(0, textStart, `{"type":"text_delta","text":"ok"}`),
				block(1, `{"type":"tool_use","id":"toolu_1","name":"f","input":{},"caller":{"type":"direct"}}`, inputDelta(""), inputDelta(`{"x": 1.0`), inputDelta(`}`)),
				block(2, `{"type":"tool_use","id":"toolu_2","name":"g","input":{}}`)),
			`[{"type":"text","text":"ok"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"x": 1.0},"caller":{"type":"direct"}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}]`,
		},
		"an empty text, which the provider does not take back": {
			slices.Concat(block(0, textStart), block(1, textStart, `{"type":"text_delta","text":"Hi"}`)),
			`[{"type":"text","text":"Hi"}]`,
		},
		"lines with blanks at their end, and an event without type": {
			slices.Concat(block(0, textStart, `{"type":"text_delta","text":"Hi"}   `), []string{`{"type":"something_new","index":0}`}),
			`[{"type":"text","text":"Hi"}]`,
		},
		"blocks interleaved, the beginning repeated": {
			[]string{
				`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				`{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":10}}}`,
				`{"type":"content_block_delta","index":1,"delta":` + inputDelta(`{"x":`) + `}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`,
				`{"type":"content_block_delta","index":1,"delta":` + inputDelta(`1}`) + `}`,
			},
			`[{"type":"text","text":"Hi"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"x":1}}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, llm.Anthropic, hello(), told("end_turn", tc.stream...))
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"role":"assistant","content":` + tc.want + `}`; string(turn.Message) != want {
				t.Errorf("message is %s\nwant       %s", turn.Message, want)
			}
			if want := (llm.Usage{Input: 17, CachedRead: 4, CacheWrite: 3, Output: 20}); turn.Usage != want {
				t.Errorf("usage is %+v, want %+v", turn.Usage, want)
			}
		})
	}
}

func TestAnthropic_StopReasons(t *testing.T) {
	t.Parallel()
	text := block(0, textStart, `{"type":"text_delta","text":"Hi"}`)
	call := block(0, `{"type":"tool_use","id":"toolu_1","name":"f","input":{}}`, inputDelta(`{}`))
	for _, tc := range []struct {
		reason string
		stream []string
		want   llm.Stop
	}{
		{"end_turn", text, llm.StopEnd},
		{"stop_sequence", text, llm.StopEnd},
		{"tool_use", call, llm.StopToolCalls},
		{"end_turn", call, llm.StopToolCalls},
		{"tool_use", text, llm.StopEnd},
		{"max_tokens", text, llm.StopMaxTokens},
		{"pause_turn", text, llm.StopPause},
		{"refusal", nil, llm.StopRefusal},
		{"model_context_window_exceeded", text, llm.StopContextWindow},
	} {
		turn, err := ask(t, llm.Anthropic, hello(), told(tc.reason, tc.stream...))
		if err != nil {
			t.Fatal(err)
		}
		if turn.Stop != tc.want {
			t.Errorf("%s: stop is %s, want %s", tc.reason, turn.Stop, tc.want)
		}
	}
}

func TestAnthropic_ACutThoughtIsNotSentBack_C46(t *testing.T) {
	t.Parallel()
	turn, err := ask(t, llm.Anthropic, hello(), told("max_tokens", block(0, thinkingStart, `{"type":"thinking_delta","thinking":"Let me"}`)...))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"role":"assistant","content":[]}`; string(turn.Message) != want {
		t.Errorf("message is %s, want %s", turn.Message, want)
	}
	r := hello()
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message}, said("Go on"))
	body, err := llm.Encode(llm.Anthropic, "m", r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]},{"role":"assistant","content":[{"type":"text","text":"(no answer)"}]},{"role":"user","content":[{"type":"text","text":"Go on"}]}],"stream":true,"max_tokens":8192}`
	if string(body) != want {
		t.Errorf("request is %s\nwant       %s", body, want)
	}
}
