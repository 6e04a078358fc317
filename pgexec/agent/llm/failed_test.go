package llm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func TestFailedTurn_ARefusedCallIsAnswered_C46(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ generation, message string }{
		"a call":       {`{"name":"f","arguments":{"foo": 1}}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1_1","type":"function","function":{"name":"f","arguments":"{\"foo\": 1}"}}]}`},
		"a text":       {`{"name":"f","parameters":"{\"foo\":1}"}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1_1","type":"function","function":{"name":"f","arguments":"{\"foo\":1}"}}]}`},
		"a list":       {`[{"name":"f"},{"name":"g"}]`, `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1_1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_1_2","type":"function","function":{"name":"g","arguments":"{}"}}]}`},
		"not a call":   {`<function=f>`, ""},
		"without name": {`{"arguments":{}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fmt.Sprintf(`{"error":{"message":"no such field foo","code":"tool_use_failed","failed_generation":%q}}`, tc.generation)
			for _, a := range []answer{{status: 400, body: e}, {body: "event: error\ndata: " + e + "\n\n"}} {
				client := newModel(t, a).client(llm.OpenAI)
				_, err := client.Do(t.Context(), hello(), nil)
				var failed *llm.Error
				if !errors.As(err, &failed) || failed.Kind != llm.ToolUseFailed {
					t.Fatalf("got %v", err)
				}
				checkFailedTurn(t, client.FailedTurn(hello(), failed), tc.message)
			}
		})
	}
}

func checkFailedTurn(t *testing.T, turn *llm.Turn, message string) {
	t.Helper()
	if message == "" {
		if turn != nil {
			t.Errorf("got %+v, want no turn", turn)
		}
		return
	}
	if turn == nil || string(turn.Message) != message || !turn.Usage.Estimated {
		t.Fatalf("got %+v, want %s", turn, message)
	}
	r := hello()
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
	for _, c := range turn.Calls {
		if c.Args != nil || !strings.Contains(c.Fault, "no such field foo") {
			t.Errorf("call is %+v, want a fault", c)
		}
		r.Messages = append(r.Messages, result(c.ID, c.Fault))
	}
	if _, err := llm.Encode(llm.OpenAI, "m", r); err != nil {
		t.Error(err)
	}
}

func TestOpenAI_AnEndThatIsAnErrorIsOne(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]llm.Kind{
		"error": llm.Server,
		"function_call_filter: MALFORMED_FUNCTION_CALL": llm.ToolUseFailed,
	} {
		_, err := ask(t, llm.OpenAI, hello(), chunks(delta(`{"content":"hi"}`), finish(reason)))
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != want {
			t.Errorf("%s: got %v, want %s", reason, err, want)
		}
	}
}

func TestOpenAI_AnUsageThatCannotBeReadIsEstimated(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{
		`{"prompt_tokens":"many"}`, `{"prompt_tokens":-5,"completion_tokens":1}`, `{"prompt_tokens":5,"completion_tokens":9000000000000000000}`,
		`{}`,
	} {
		turn, err := ask(t, llm.OpenAI, hello(), chunks(delta(`{"content":"hi"}`), finish("stop"), `{"choices":[],"usage":`+usage+`}`))
		if err != nil || !turn.Usage.Estimated || turn.Usage.Input <= 0 {
			t.Errorf("%s: got %+v, %v", usage, turn, err)
		}
	}
}
