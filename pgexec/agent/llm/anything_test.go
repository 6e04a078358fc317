package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// fragments are events as servers send them, and some as none should.
var fragments = map[llm.Provider][]string{
	llm.OpenAI: {
		delta(`{"role":"assistant","content":""}`), delta(`{"content":"text "}`), delta(`{"content":null}`), delta(`{"content":[{"type":"text","text":"part"}]}`),
		delta(`{"refusal":"no"}`), delta(`{"reasoning_content":"hm"}`), delta(`{"reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}`),
		delta(`{"reasoning_details":"x"}`), delta(`{"tool_calls":null}`), delta(`{"tool_calls":[]}`), delta(`null`),
		called(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), called(`{"index":0,"function":{"arguments":"{\"x\":"}}`),
		called(`{"index":0,"function":{"arguments":"1}"}}`), called(`{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}`),
		called(`{"id":"","function":{"name":"","arguments":"null"}}`), called(`{"index":-1,"id":7,"function":null,"extra_content":{"a":1}}`, `{"function":{"name":"g","arguments":{}}}`),
		called(`{"index":0,"function":{"arguments":"\ud83d"}}`), called(`"x"`), called(),
		finish("stop"), finish("length"), finish("tool_calls"), finish("content_filter"), finish("error"),
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"choices":[{}]}`, `{"choices":null,"usage":"?"}`, `{"error":{"message":"x"}}`, `[]`, ``,
	},
	llm.Anthropic: {
		`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}`, `{"type":"ping"}`, `{"type":"message_stop"}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}`, `{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}`, `{"type":"message_delta","delta":null,"usage":3}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"text"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"c2ln"}}`, `{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"x"}}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`, `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"1}"}}`, `{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"a","name":"","input":[]}}`,
		`{"type":"content_block_start","content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`, `{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}`,
		`{"type":"content_block_start","index":4,"content_block":{"n":1}}`, `{"type":"content_block_start","index":5}`, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`,
		`{"type":"error","error":{"type":"overloaded_error"}}`, `{}`, ``,
	},
}

func TestProperty_WhatATurnGivesCanBeSentBack_C46(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]llm.Provider{llm.OpenAI, llm.Anthropic}).Draw(t, "provider")
		sent := rapid.SliceOfN(rapid.SampledFrom(fragments[p]), 0, 12).Draw(t, "fragments")
		body := chunks(append(sent, finish("stop"))...)
		if p == llm.Anthropic {
			body = events(append(sent, `{"type":"message_stop"}`)...)
		}
		request := checkAnything(t, p, body)
		if request != nil && !strings.Contains(string(request), `thinking"`) { // it knows its own thoughts only
			checkAccepted(t, p, request)
		}
	})
}

// FuzzStream feeds anything.
func FuzzStream(f *testing.F) {
	for p, all := range fragments {
		for _, fragment := range all {
			f.Add(p == llm.OpenAI, chunks(fragment, finish("stop")))
		}
	}
	f.Fuzz(func(t *testing.T, openAI bool, body string) {
		p := llm.Anthropic
		if openAI {
			p = llm.OpenAI
		}
		checkAnything(t, p, body)
	})
}

// tester is testing.T or rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
	Context() context.Context
}

// checkAnything checks that a stream gives an *Error, or a turn that can be sent
// back once its calls are answered: the request that does.
func checkAnything(t tester, p llm.Provider, body string) []byte {
	t.Helper()
	r := hello()
	turn, err := canned(t, p, body).Do(t.Context(), r, nil)
	if err != nil {
		if e := (*llm.Error)(nil); !errors.As(err, &e) {
			t.Fatal(err)
		}
		return nil
	}
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
	for _, c := range turn.Calls {
		if c.ID == "" || c.Name == "" || (c.Fault == "") != json.Valid(c.Args) || c.Fault == "" && c.Args[0] != '{' {
			t.Errorf("call %+v", c)
		}
		r.Messages = append(r.Messages, result(c.ID, "ok"))
	}
	r.Messages = append(r.Messages, said("go on"))
	request, err := llm.Encode(p, "m", r)
	if err != nil || !json.Valid(request) {
		t.Errorf("%v: %s", err, request)
	}
	return request
}

// checkAccepted asks the scripted model, which refuses what the real ones refuse.
func checkAccepted(t tester, p llm.Provider, request []byte) {
	t.Helper()
	script, err := fakemodel.Load(strings.NewReader("rules: [{reply: {text: Fine.}}]"))
	if err != nil {
		t.Fatal(err)
	}
	path := map[llm.Provider]string{llm.OpenAI: "/v1/chat/completions", llm.Anthropic: "/v1/messages"}[p]
	req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(request))
	req.Header.Set("Anthropic-Version", "2023-06-01")
	w := httptest.NewRecorder()
	fakemodel.New(script, nil).ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Errorf("refused: %s\n%s", w.Body, request)
	}
}
