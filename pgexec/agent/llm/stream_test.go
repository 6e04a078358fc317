package llm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// chunks is a stream of chat completion chunks, with the end of it.
func chunks(deltas ...string) string {
	var b strings.Builder
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: %s\n\n", d)
	}
	return b.String() + "data: [DONE]\n\n"
}

// delta is a chunk of one delta.
func delta(d string) string {
	return fmt.Sprintf(`{"id":"c1","model":"m","choices":[{"index":0,"delta":%s,"finish_reason":null}],"usage":null}`, d)
}

// called is a delta of tool call pieces.
func called(pieces ...string) string {
	return delta(`{"tool_calls":[` + strings.Join(pieces, ",") + `]}`)
}

func finish(reason string) string {
	return fmt.Sprintf(`{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

// summary is what tests compare of calls.
func summary(calls []llm.Call) string {
	var list []string
	for _, c := range calls {
		s := fmt.Sprintf("%s %s %s", c.ID, c.Name, c.Args)
		if c.Fault != "" {
			s = fmt.Sprintf("%s %s fault", c.ID, c.Name)
		}
		list = append(list, s)
	}
	return strings.Join(list, "; ")
}

// ask runs a stream through a client, whole and byte by byte and with the line
// ends of Windows, which has to make no difference.
func ask(t *testing.T, p llm.Provider, r *llm.Request, body string) (*llm.Turn, error) {
	t.Helper()
	m := newModel(t,
		answer{body: body},
		answer{body: body, chunk: 1},
		answer{body: strings.ReplaceAll(body, "\n", "\r\n"), chunk: 7})
	c := m.client(p)
	turn, err := c.Do(t.Context(), r, nil)
	for range 2 {
		again, errAgain := c.Do(t.Context(), r, nil)
		if fmt.Sprint(errAgain) != fmt.Sprint(err) || asJSON(t, again) != asJSON(t, turn) {
			t.Fatalf("cut otherwise, the stream gives\n%s %v, not\n%s %v", asJSON(t, again), errAgain, asJSON(t, turn), err)
		}
	}
	return turn, err
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// events is a stream of Anthropic's events.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		_ = json.Unmarshal([]byte(d), &e) // what is broken has no type
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, d)
	}
	return b.String()
}

// told is a stream of events between the first and the last ones.
func told(stop string, data ...string) string {
	all := []string{`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}}}`, `{"type":"ping"}`}
	all = append(all, data...)
	return events(append(all,
		fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":20}}`, stop),
		`{"type":"message_stop"}`)...)
}

// block is a content block that arrives in pieces.
func block(index int, start string, deltas ...string) []string {
	list := []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, start)}
	for _, d := range deltas {
		list = append(list, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, d))
	}
	return append(list, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

func inputDelta(partial string) string {
	return fmt.Sprintf(`{"type":"input_json_delta","partial_json":%q}`, partial)
}
