package llm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// roundTrip is a transport that answers without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// canned is a client that always gets this stream.
func canned(t interface{ Fatal(...any) }, p llm.Provider, body string) *llm.Client {
	client, err := llm.New(llm.Config{Provider: p, Model: "m", HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// genArgs is a JSON object of any spelling.
func genArgs(t *rapid.T) string {
	args := map[string]string{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		args[rapid.String().Draw(t, "name")] = rapid.String().Draw(t, "value")
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// cutText cuts a text into pieces, between characters.
func cutText(t *rapid.T, s string) []string {
	var pieces []string
	for runes := []rune(s); len(runes) > 0; {
		n := rapid.IntRange(1, len(runes)).Draw(t, "piece")
		pieces = append(pieces, string(runes[:n]))
		runes = runes[n:]
	}
	return pieces
}

// interleave merges queues in any order that keeps each one's own.
func interleave(t *rapid.T, queues [][]string) []string {
	var all []string
	for {
		queues = slices.DeleteFunc(queues, func(q []string) bool { return len(q) == 0 })
		if len(queues) == 0 {
			return all
		}
		i := rapid.IntRange(0, len(queues)-1).Draw(t, "queue")
		all = append(all, queues[i][0])
		queues[i] = queues[i][1:]
	}
}

func TestProperty_AnyInterleavingGivesTheSameCalls_C48(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "calls")
		ids := rapid.Bool().Draw(t, "ids")
		repeat := rapid.Bool().Draw(t, "every piece has id and name")
		var want []string
		openAI, anthropic := make([][]string, n), make([][]string, n)
		for i := range n {
			args, id, name := genArgs(t), fmt.Sprintf("id%d", i), fmt.Sprintf("tool%d", rapid.IntRange(0, 1).Draw(t, "tool"))
			head := map[string]any{"index": i, "id": id, "type": "function", "function": map[string]any{"name": name, "arguments": ""}}
			shown := id
			if !ids {
				head["id"], shown = "", fmt.Sprintf("call_1_%d", i+1)
			}
			want = append(want, fmt.Sprintf("%s %s %s", shown, name, args))
			openAI[i] = []string{called(mustJSON(head))}
			start := mustJSON(map[string]any{"type": "tool_use", "id": head["id"], "name": name, "input": map[string]any{}})
			anthropic[i] = []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, start)}
			for _, piece := range cutText(t, args) {
				f := map[string]any{"arguments": piece}
				delta := map[string]any{"index": i, "function": f}
				if repeat {
					delta["id"], f["name"] = head["id"], name
				}
				openAI[i] = append(openAI[i], called(mustJSON(delta)))
				anthropic[i] = append(anthropic[i], fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, i, mustJSON(piece)))
			}
		}
		for p, body := range map[llm.Provider]string{
			llm.OpenAI:    chunks(append(interleave(t, openAI), finish("tool_calls"))...),
			llm.Anthropic: told("tool_use", interleave(t, anthropic)...),
		} {
			turn, err := canned(t, p, body).Do(t.Context(), hello(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(turn.Calls); got != strings.Join(want, "; ") {
				t.Errorf("%s: calls are %s, want %s", p, got, strings.Join(want, "; "))
			}
		}
	})
}

// TestProperty_CallsOneAfterTheOther_C48 has every habit of servers that leaves a
// way to tell calls apart, which come one after the other.
func TestProperty_CallsOneAfterTheOther_C48(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		index := rapid.SampledFrom([]string{"right", "zero", "none", "negative"}).Draw(t, "index")
		id := rapid.SampledFrom([]string{"first", "every", "empty", "none"}).Draw(t, "id")
		repeatName := rapid.Bool().Draw(t, "name in every piece")
		emptyFirst := !repeatName && rapid.Bool().Draw(t, "no arguments in the first piece")
		var want, deltas []string
		for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
			args, name := genArgs(t), rapid.SampledFrom([]string{"f", "g"}).Draw(t, "tool")
			shown := fmt.Sprintf("call_1_%d", i+1)
			if id == "first" || id == "every" {
				shown = fmt.Sprintf("id%d", i)
			}
			want = append(want, fmt.Sprintf("%s %s %s", shown, name, args))
			pieces := cutText(t, args)
			if emptyFirst {
				pieces = append([]string{""}, pieces...)
			}
			for k, piece := range pieces {
				f := map[string]any{"arguments": piece}
				c := map[string]any{"function": f}
				if k == 0 || repeatName {
					f["name"] = name
				}
				switch {
				case id == "empty":
					c["id"] = ""
				case id == "every", id == "first" && k == 0:
					c["id"] = shown
				}
				switch index {
				case "right":
					c["index"] = i
				case "zero":
					c["index"] = 0
				case "negative":
					c["index"] = -1
				}
				deltas = append(deltas, called(mustJSON(c)))
			}
		}
		turn, err := canned(t, llm.OpenAI, chunks(append(deltas, finish("tool_calls"))...)).Do(t.Context(), hello(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := summary(turn.Calls); got != strings.Join(want, "; ") {
			t.Errorf("calls are %s, want %s", got, strings.Join(want, "; "))
		}
	})
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestProperty_TheNextRequestBeginsWithThisOne_C51(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]llm.Provider{llm.OpenAI, llm.Anthropic}).Draw(t, "provider")
		r := &llm.Request{
			System:           rapid.String().Draw(t, "system"),
			Messages:         []llm.Message{said("x" + rapid.String().Draw(t, "prompt"))},
			CacheBreakpoints: rapid.Bool().Draw(t, "breakpoints"),
			Extra:            json.RawMessage(rapid.SampledFrom([]string{"", `{"b":1,"a":[2]}`}).Draw(t, "extra")),
		}
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "tools")]
		for turn := range rapid.IntRange(1, 5).Draw(t, "turns") {
			// What may be another one in each turn: the order in which tools are read, and the settings.
			r.Tools = nil
			for _, name := range rapid.Permutation(names).Draw(t, "order") {
				r.Tools = append(r.Tools, llm.Tool{Name: name, Description: name})
			}
			r.ToolChoice = rapid.SampledFrom([]string{"", llm.ChoiceAuto, llm.ChoiceNone}).Draw(t, "choice")
			r.MaxTokens = rapid.Int64Range(0, 100).Draw(t, "max tokens")
			body, err := llm.Encode(p, "m", r)
			if err != nil {
				t.Fatal(err)
			}
			again, err := llm.Encode(p, "m", reread(r))
			if err != nil || !bytes.Equal(again, body) {
				t.Fatalf("the same request is\n%s\nand %v\n%s", body, err, again)
			}
			prefix := body[:bytes.LastIndex(body, []byte(`],"stream":true`))]
			r.Messages = append(r.Messages, genTurn(t, p, turn)...)
			next, err := llm.Encode(p, "m", r)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(next, prefix) {
				t.Fatalf("the next request is\n%s\nwant first\n%s", next, prefix)
			}
		}
	})
}

// genTurn is an assistant's message and what follows it.
func genTurn(t *rapid.T, p llm.Provider, turn int) []llm.Message {
	var calls []llm.Call
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		calls = append(calls, call(fmt.Sprintf("t%d_%d", turn, i), "f", genArgs(t)))
	}
	raw, err := llm.AssistantMessage(p, rapid.String().Draw(t, "text"), calls)
	if err != nil {
		t.Fatal(err)
	}
	messages := []llm.Message{{Role: llm.RoleAssistant, Raw: raw}}
	for _, c := range rapid.Permutation(calls).Draw(t, "results") {
		m := result(c.ID, rapid.String().Draw(t, "result"))
		if rapid.Bool().Draw(t, "image") {
			m.Parts = append(m.Parts, llm.Part{Image: &llm.Image{URL: "https://example.org/" + c.ID}})
		}
		messages = append(messages, m)
	}
	if len(calls) == 0 || rapid.Bool().Draw(t, "user speaks") {
		messages = append(messages, said("x"+rapid.String().Draw(t, "user")))
	}
	return messages
}

// reread is the request as another replica makes it, from bytes of its own.
func reread(r *llm.Request) *llm.Request {
	c := *r
	c.Messages = slices.Clone(r.Messages)
	for i := range c.Messages {
		c.Messages[i].Raw = bytes.Clone(c.Messages[i].Raw)
	}
	return &c
}
