package llm_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// badTurns has in each turn what makes conversations invalid: the server refuses
// a request that the real APIs refuse.
const badTurns = `
rules:
  - when: {attempt: 1, turn: 1}
    error: {status: 529, retry_after: 7s}
  - when: {turn: 0}
    reply:
      thinking: "Let me <think> 😀."
      text: I look.
      calls:
        - {name: look, args: {what: "a<b"}, id: ""}
        - {name: look, args: {what: c}, id: ""}
        - {name: look, raw_args: '{"what":', id: "x"}
        - {name: look, raw_args: 'null', id: "x"}
  - when: {turn: 1}
    reply:
      calls: [{name: look, args: {what: d}, id: "x"}, {name: look, raw_args: '{"what": "e', id: ""}]
      stop: max_tokens
  - when: {turn: 2}
    reply: {text: "", stop: refusal}
  - when: {turn: 3}
    reply: {thinking: "Hm, hm", text: "", stop: max_tokens}
  - when: {turn: 4}
    reply: {calls: [{name: look, args: {}}, {name: "functions.look", args: {}}, {name: "Ein\u00e4ugig sein", args: {}}]}
  - reply: {text: Done.}
`

func TestDo_EveryRequestOfABadConversationIsAccepted_C46(t *testing.T) {
	t.Parallel()
	for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			script, err := fakemodel.Load(strings.NewReader(badTurns))
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(fakemodel.New(script, nil))
			t.Cleanup(server.Close)
			client, err := llm.New(llm.Config{Provider: p, BaseURL: server.URL + "/v1", Model: "m", APIKey: testKey})
			if err != nil {
				t.Fatal(err)
			}
			r := &llm.Request{System: "Look.", Messages: []llm.Message{said("Look around.")}, Tools: []llm.Tool{{Name: "look"}}, CacheBreakpoints: true}
			ids, stops := map[string]bool{}, []llm.Stop{}
			for turn := (*llm.Turn)(nil); turn == nil || turn.Text != "Done."; {
				turn = again(t, client, r)
				stops = append(stops, turn.Stop)
				r.Messages = append(r.Messages, answered(t, turn, ids)...)
			}
			want := []llm.Stop{llm.StopToolCalls, llm.StopMaxTokens, llm.StopRefusal, llm.StopMaxTokens, llm.StopToolCalls, llm.StopEnd}
			if p == llm.OpenAI {
				want[2] = stops[2] // it has no such word
			}
			if asJSON(t, stops) != asJSON(t, want) {
				t.Errorf("turns ended with %v, want %v", stops, want)
			}
			if len(ids) != 9 {
				t.Errorf("ids of calls are %v, want 9", ids)
			}
		})
	}
}

// again asks until it gets a turn, as long as the error says that it may.
func again(t *testing.T, client *llm.Client, r *llm.Request) *llm.Turn {
	t.Helper()
	for {
		turn, err := client.Do(t.Context(), r, nil)
		var e *llm.Error
		switch {
		case err == nil:
			return turn
		case !errors.As(err, &e) || e.Permanent() || e.RetryAfter == 0:
			t.Fatal(err)
		}
	}
}

// answered is a turn and what an agent says to it.
func answered(t *testing.T, turn *llm.Turn, ids map[string]bool) []llm.Message {
	t.Helper()
	messages := []llm.Message{{Role: llm.RoleAssistant, Raw: turn.Message}}
	for _, c := range turn.Calls {
		if ids[c.ID] {
			t.Errorf("id %q is given twice", c.ID)
		}
		ids[c.ID] = true
		m := result(c.ID, "nothing")
		if c.Fault != "" {
			m = result(c.ID, "Error: "+c.Fault)
			m.IsError = true
		} else {
			m.Parts = append(m.Parts, llm.Part{Image: &llm.Image{MediaType: "image/png", Data: []byte("png")}})
		}
		messages = append(messages, m)
	}
	if len(turn.Calls) == 0 {
		messages = append(messages, said("Go on."))
	}
	return messages
}
