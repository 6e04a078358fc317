package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// interaction is one request to a real provider and its answer.
type interaction struct {
	request map[string]any
	answer  answer
}

// cassette reads a recording, of any of the three formats there are.
func cassette(t *testing.T, name string) []interaction {
	t.Helper()
	dir := os.Getenv("PGEXEC_CASSETTES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "cassettes")
	}
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no recording %s: set PGEXEC_CASSETTES to the directory that has it", filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".chunks.txt") {
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		if strings.Contains(name, "anthropic") {
			return []interaction{{answer: answer{body: events(lines...)}}}
		}
		return []interaction{{answer: answer{body: chunks(lines...)}}}
	}
	var file struct {
		Interactions []struct {
			Request struct {
				ParsedBody map[string]any `yaml:"parsed_body"`
				Body       string
			}
			Response struct {
				Body       yaml.Node
				ParsedBody any `yaml:"parsed_body"`
				Code       int
				Status     yaml.Node
			}
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	var list []interaction
	for _, i := range file.Interactions {
		in := interaction{request: i.Request.ParsedBody, answer: answer{status: i.Response.Code}}
		if in.request == nil {
			if err := json.Unmarshal([]byte(i.Request.Body), &in.request); err != nil {
				t.Fatal(err)
			}
		}
		var status struct{ Code int }
		if i.Response.Status.Decode(&status) == nil && status.Code != 0 {
			in.answer.status = status.Code
		}
		var body struct{ String string }
		switch {
		case i.Response.ParsedBody != nil:
			in.answer.body = asJSON(t, i.Response.ParsedBody)
			in.answer.header = map[string]string{"Content-Type": "application/json"}
		case i.Response.Body.Decode(&in.answer.body) == nil:
		case i.Response.Body.Decode(&body) == nil:
			in.answer.body = body.String
		}
		list = append(list, in)
	}
	return list
}

// opening is the request that a recording begins with.
func opening(t *testing.T, p llm.Provider, request map[string]any) *llm.Request {
	t.Helper()
	r := &llm.Request{}
	r.System, _ = request["system"].(string)
	for _, m := range request["messages"].([]any) {
		m := m.(map[string]any)
		if m["role"] == "system" {
			r.System = m["content"].(string)
			continue
		}
		r.Messages = append(r.Messages, llm.Message{Role: llm.RoleUser, Parts: parts(t, m["content"])})
	}
	for _, tool := range request["tools"].([]any) {
		f := tool.(map[string]any)
		schema := f["input_schema"]
		if p == llm.OpenAI {
			f = f["function"].(map[string]any)
			schema = f["parameters"]
		}
		r.Tools = append(r.Tools, llm.Tool{Name: f["name"].(string), Description: f["description"].(string), Schema: json.RawMessage(asJSON(t, schema))})
	}
	return r
}

// parts reads a recorded content.
func parts(t *testing.T, content any) []llm.Part {
	t.Helper()
	if s, ok := content.(string); ok {
		return []llm.Part{{Text: s}}
	}
	var list []llm.Part
	for _, p := range content.([]any) {
		p := p.(map[string]any)
		switch p["type"] {
		case "text":
			list = append(list, llm.Part{Text: p["text"].(string)})
		case "image":
			list = append(list, llm.Part{Image: &llm.Image{URL: p["source"].(map[string]any)["url"].(string)}})
		case "image_url":
			list = append(list, llm.Part{Image: &llm.Image{URL: p["image_url"].(map[string]any)["url"].(string)}})
		default:
			t.Fatalf("a recorded part is %v", p)
		}
	}
	return list
}

// results are the recorded results behind the last assistant message of a request.
func results(t *testing.T, request map[string]any) []llm.Message {
	t.Helper()
	messages := request["messages"].([]any)
	last := 0
	for i, m := range messages {
		if m.(map[string]any)["role"] == "assistant" {
			last = i
		}
	}
	var list []llm.Message
	for _, m := range messages[last+1:] {
		m := m.(map[string]any)
		switch {
		case m["role"] == "tool":
			list = append(list, llm.Message{Role: llm.RoleTool, CallID: m["tool_call_id"].(string), Parts: parts(t, m["content"])})
		case len(list) > 0: // the image that a result speaks of
			list[len(list)-1].Parts = append(list[len(list)-1].Parts, parts(t, m["content"])[1])
		default:
			for _, b := range m["content"].([]any) {
				b := b.(map[string]any)
				list = append(list, llm.Message{Role: llm.RoleTool, CallID: b["tool_use_id"].(string), Parts: parts(t, b["content"])})
			}
		}
	}
	return list
}

// replay runs a recorded conversation: each request that we encode has to be the
// recorded one, and each answer is read from the recording.
func replay(t *testing.T, p llm.Provider, tape []interaction) []*llm.Turn {
	t.Helper()
	var answers []answer
	for _, i := range tape {
		answers = append(answers, i.answer)
	}
	m := newModel(t, answers...)
	client := m.client(p)
	r := hello()
	if tape[0].request != nil {
		r = opening(t, p, tape[0].request)
	}
	var turns []*llm.Turn
	for i := range tape {
		turn, err := client.Do(t.Context(), r, nil)
		var e *llm.Error
		if errors.As(err, &e) && e.Kind == llm.ToolUseFailed {
			turn, err = client.FailedTurn(r, e), nil
		}
		if err != nil {
			t.Fatalf("turn %d: %v", i+1, err)
		}
		turns = append(turns, turn)
		if tape[i].request != nil {
			compare(t, i+1, m.bodies[i], tape[i].request)
		}
		if i == len(tape)-1 {
			break
		}
		r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
		for k, res := range results(t, tape[i+1].request) {
			if k < len(turn.Calls) { // a minted id is not the recorded one
				res.CallID = turn.Calls[k].ID
			}
			r.Messages = append(r.Messages, res)
		}
	}
	return turns
}

// compare compares what of two requests means something.
func compare(t *testing.T, turn int, body []byte, recorded map[string]any) {
	t.Helper()
	var ours, theirs map[string]any
	if err := json.Unmarshal(body, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(asJSON(t, recorded)), &theirs); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"messages", "system", "tools"} {
		ids := map[string]int{}
		a, b := meaning(ours[name], ids), meaning(theirs[name], map[string]int{})
		if name == "tools" {
			a, b = byName(a), byName(b)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("turn %d: %s are\n%s\nrecorded were\n%s", turn, name, asJSON(t, a), asJSON(t, b))
		}
	}
}

// meaning drops what makes no difference: null, defaults, a list of one text
// instead of the text, the spelling of arguments, the choice of ids, and how a
// program tells the model which image is which.
func meaning(v any, ids map[string]int) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for i, e := range v {
			if part, ok := e.(map[string]any); ok && i+1 < len(v) && part["type"] == "text" && v[i+1].(map[string]any)["type"] == "image_url" {
				continue
			}
			list = append(list, meaning(e, ids))
		}
		if len(list) == 1 {
			if part, ok := list[0].(map[string]any); ok && part["type"] == "text" {
				return part["text"]
			}
		}
		return list
	case map[string]any:
		o := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e := v[name]
			s, _ := e.(string)
			switch {
			case e == nil, e == false && (name == "is_error" || name == "strict"), e == true && name == "strict",
				name == "reasoning", strings.HasPrefix(s, "<think>"):
			case name == "id" || name == "tool_call_id" || name == "tool_use_id":
				if _, ok := ids[s]; !ok {
					ids[s] = len(ids)
				}
				o[name] = ids[s]
			case name == "arguments":
				var args any
				_ = json.Unmarshal([]byte(s), &args)
				o[name] = args
			default:
				o[name] = meaning(e, ids)
			}
		}
		return o
	default:
		return v
	}
}

func byName(v any) any {
	m := map[string]any{}
	list, _ := v.([]any)
	for _, tool := range list {
		tool := tool.(map[string]any)
		if f, ok := tool["function"].(map[string]any); ok {
			tool = f
		}
		m[tool["name"].(string)] = tool
	}
	return m
}

// restream makes a stream of a recorded answer that was none.
func restream(t *testing.T, p llm.Provider, tape []interaction) []interaction {
	t.Helper()
	tape = slices.Clone(tape)
	for i := range tape {
		a := &tape[i].answer
		if a.header == nil || a.status != 200 {
			continue
		}
		a.header = nil
		var body map[string]json.RawMessage
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			t.Fatal(err)
		}
		if p == llm.OpenAI {
			a.body = restreamOpenAI(t, body)
		} else {
			a.body = restreamAnthropic(t, body)
		}
	}
	return tape
}

func restreamOpenAI(t *testing.T, body map[string]json.RawMessage) string {
	var choices []struct {
		Message      map[string]any
		FinishReason string `json:"finish_reason"`
	}
	if err := json.Unmarshal(body["choices"], &choices); err != nil {
		t.Fatal(err)
	}
	var deltas []string
	m := choices[0].Message
	calls, _ := m["tool_calls"].([]any)
	delete(m, "tool_calls")
	deltas = append(deltas, delta(asJSON(t, m)))
	for i, c := range calls {
		c := c.(map[string]any)
		c["index"] = i
		f := c["function"].(map[string]any)
		args := f["arguments"].(string)
		f["arguments"] = ""
		deltas = append(deltas, called(asJSON(t, c)))
		for b := range len(args) {
			deltas = append(deltas, called(asJSON(t, map[string]any{"index": i, "function": map[string]any{"arguments": args[b : b+1]}})))
		}
	}
	deltas = append(deltas, finish(choices[0].FinishReason))
	usage := asJSON(t, map[string]any{"id": body["id"], "model": body["model"], "choices": []any{}, "usage": body["usage"]})
	return chunks(append(deltas, usage)...)
}

func restreamAnthropic(t *testing.T, body map[string]json.RawMessage) string {
	var content []map[string]any
	if err := json.Unmarshal(body["content"], &content); err != nil {
		t.Fatal(err)
	}
	m := maps.Clone(body)
	m["content"], m["stop_reason"] = json.RawMessage(`[]`), json.RawMessage(`null`)
	list := []string{asJSON(t, map[string]any{"type": "message_start", "message": m})}
	for i, b := range content {
		var deltas []string
		for name, kind := range map[string]string{"text": "text_delta", "thinking": "thinking_delta", "signature": "signature_delta"} {
			if s, ok := b[name].(string); ok {
				half := strings.Index(s, " ") + 1
				deltas = append(deltas, asJSON(t, map[string]any{"type": kind, name: s[:half]}), asJSON(t, map[string]any{"type": kind, name: s[half:]}))
				b[name] = ""
			}
		}
		if input, ok := b["input"]; ok {
			text := asJSON(t, input)
			deltas = append(deltas, inputDelta(text[:1]), inputDelta(text[1:]))
			b["input"] = map[string]any{}
		}
		list = append(list, block(i, asJSON(t, b), deltas...)...)
	}
	stop := asJSON(t, map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": body["stop_reason"]}, "usage": body["usage"]})
	return events(append(list, stop, `{"type":"message_stop"}`)...)
}

// replayBoth replays a recording as it is, and as a stream where it was none.
func replayBoth(t *testing.T, p llm.Provider, name string) []*llm.Turn {
	t.Helper()
	tape := cassette(t, name)
	turns, streamed := replay(t, p, tape), replay(t, p, restream(t, p, tape))
	for i, turn := range turns {
		s := streamed[i]
		var a, b any
		if err := errors.Join(json.Unmarshal(turn.Message, &a), json.Unmarshal(s.Message, &b)); err != nil {
			t.Fatal(err)
		}
		turnRest, streamedRest := *turn, *s
		turnRest.Message, streamedRest.Message = nil, nil
		turnRest.RequestID, streamedRest.RequestID = "", "" // there is none of HTTP in a recording
		if !reflect.DeepEqual(a, b) || !bytes.Equal([]byte(asJSON(t, turnRest)), []byte(asJSON(t, streamedRest))) {
			t.Errorf("turn %d is\n%s\nas a stream\n%s", i+1, asJSON(t, turn), asJSON(t, s))
		}
	}
	return turns
}
