package llm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func TestCall_UnusableArgumentsAreAFaultAndStayInTheMessage_C45(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args  string
		fault string // "" if the arguments can be used
	}{
		"object":           {`{"x":1}`, ""},
		"nothing":          {``, ""},
		"blanks":           {"\n", ""},
		"a huge number":    {`{"x":1e999}`, ""},
		"cut":              {`{"x":`, "not valid JSON"},
		"text":             {`call it with x=1`, "not valid JSON"},
		"two objects":      {`{"x":1}{"y":2}`, "not valid JSON"},
		"null":             {`null`, "no object"},
		"list":             {`[1]`, "no object"},
		"a string of JSON": {`"{\"x\":1}"`, "no object"},
		"long":             {`{"x":"` + strings.Repeat("é", 500), "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for provider, body := range map[llm.Provider]string{
				llm.OpenAI:    chunks(called(fmt.Sprintf(`{"index":0,"id":"a","function":{"name":"f","arguments":%s}}`, asJSON(t, tc.args))), finish("tool_calls")),
				llm.Anthropic: told("tool_use", block(0, `{"type":"tool_use","id":"a","name":"f","input":{}}`, `{"type":"input_json_delta","partial_json":`+asJSON(t, tc.args)+`}`)...),
			} {
				turn, err := ask(t, provider, hello(), body)
				if err != nil {
					t.Fatal(err)
				}
				checkFault(t, provider, turn, tc.args, tc.fault)
			}
		})
	}
}

// checkFault checks a turn of one call, and that its message can be sent back.
func checkFault(t *testing.T, p llm.Provider, turn *llm.Turn, args, fault string) {
	t.Helper()
	if len(turn.Calls) != 1 {
		t.Fatalf("%s: calls are %s", p, summary(turn.Calls))
	}
	c := turn.Calls[0]
	switch {
	case fault == "" && (c.Fault != "" || len(c.Args) == 0):
		t.Errorf("%s: the call is %+v, want arguments", p, c)
	case fault != "" && (c.Args != nil || !strings.Contains(c.Fault, fault)):
		t.Errorf("%s: arguments %s, fault %q; want none and %q", p, c.Args, c.Fault, fault)
	}
	if fault != "" && !strings.Contains(string(turn.Message), "__unusable_arguments") {
		t.Errorf("%s: the model does not see what it wrote: %s", p, turn.Message)
	}
	_, calls, err := llm.ParseAssistant(p, turn.Message)
	if err != nil || asJSON(t, calls) != asJSON(t, turn.Calls) {
		t.Errorf("%s: the message has the calls %s, the turn %s (%v)", p, asJSON(t, calls), asJSON(t, turn.Calls), err)
	}
	r := hello()
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message}, result(c.ID, "Error: "+c.Fault))
	if _, err := llm.Encode(p, "m", r); err != nil {
		t.Errorf("%s: %v", p, err)
	}
}

func TestCall_CutByTheLimitHasAFault_C45(t *testing.T) {
	t.Parallel()
	whole := `{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`
	for name, tc := range map[string]struct {
		provider llm.Provider
		body     string
		want     string
	}{
		"openai":                     {llm.OpenAI, chunks(called(whole), called(`{"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":"}}`), finish("length")), "a f {}; b f fault"},
		"openai, before arguments":   {llm.OpenAI, chunks(called(whole), called(`{"index":1,"id":"b","function":{"name":"f","arguments":""}}`), finish("length")), "a f {}; b f fault"},
		"openai, filtered":           {llm.OpenAI, chunks(called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`), finish("content_filter")), "a f fault"},
		"openai, after the call":     {llm.OpenAI, chunks(called(whole), finish("length")), "a f {}"},
		"anthropic":                  {llm.Anthropic, told("max_tokens", block(0, `{"type":"tool_use","id":"a","name":"f","input":{}}`, inputDelta(`{"x":`))...), "a f fault"},
		"anthropic, before the args": {llm.Anthropic, told("max_tokens", block(0, `{"type":"tool_use","id":"a","name":"f","input":{}}`)...), "a f fault"},
		"anthropic, an earlier call": {
			llm.Anthropic,
			told("max_tokens", slices.Concat(block(0, `{"type":"tool_use","id":"a","name":"f","input":{}}`), block(1, `{"type":"tool_use","id":"b","name":"f","input":{}}`, inputDelta(`{`)))...),
			"a f {}; b f fault",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, tc.provider, hello(), tc.body)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(turn.Calls); got != tc.want {
				t.Errorf("calls are %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCall_IDsAreUniqueInTheConversation_C46(t *testing.T) {
	t.Parallel()
	bodies := map[llm.Provider]string{
		llm.OpenAI: chunks(called(`{"index":0,"id":"","function":{"name":"f","arguments":"{}"}}`), called(`{"index":1,"id":"same","function":{"name":"g","arguments":"{}"}}`), finish("stop")),
		llm.Anthropic: told("tool_use", slices.Concat(
			block(0, `{"type":"tool_use","id":"","name":"f","input":{}}`), block(1, `{"type":"tool_use","id":"same","name":"g","input":{}}`))...),
	}
	for provider, body := range bodies {
		seen := map[string]bool{}
		r := hello()
		for range 3 {
			turn, err := ask(t, provider, r, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
			for _, c := range turn.Calls {
				if c.ID == "" || seen[c.ID] {
					t.Errorf("%s: id %q is no new one", provider, c.ID)
				}
				seen[c.ID] = true
				r.Messages = append(r.Messages, result(c.ID, "ok"))
			}
		}
	}
}

func TestCall_WithoutNameHasAFault_C45(t *testing.T) {
	t.Parallel()
	for provider, body := range map[llm.Provider]string{
		llm.OpenAI:    chunks(called(`{"index":0,"id":"a","function":{"arguments":"{}"}}`), finish("stop")),
		llm.Anthropic: told("tool_use", block(0, `{"type":"tool_use","id":"a","name":"","input":{}}`)...),
	} {
		turn, err := ask(t, provider, hello(), body)
		if err != nil {
			t.Fatal(err)
		}
		if len(turn.Calls) != 1 || turn.Calls[0].Fault == "" || turn.Calls[0].Name == "" {
			t.Errorf("%s: calls are %s, want one with a name and a fault", provider, summary(turn.Calls))
		}
	}
}
