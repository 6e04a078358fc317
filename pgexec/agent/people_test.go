package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pgexec/runtime/pgexec"
)

// gated is a tool that is a kind of the test and needs approval.
func gated(name string) object {
	t := kindTool(name)
	t["name"], t["approval"] = "gated_"+name, true
	return t
}

func TestApproval_GatedAndUngatedCallsOfOneTurn_C38_C40(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply:
      calls:
        - {name: gated_echo, args: {n: 1}}
        - {name: echo, args: {n: 2}}
        - {name: gated_echo, args: {n: 3}}
        - {name: gated_echo, args: {n: 4}}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{kindTool("echo"), gated("echo")}})
	b.replica(addEcho)
	id := b.ask("go")
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	if n := query[int](b, `select count(*) from pgexec.approvals where run_id = $1`, id); n != 3 {
		t.Errorf("%d approvals are open, want 3", n)
	}
	// The ungated call is there at once, the answers go to their own calls in any order.
	b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'call-1-2')`, id)
	if _, err := b.pool.Exec(b.ctx, `select pgexec.approve($1, 'approval-1-4', '[44]')`, id); err == nil || !strings.Contains(err.Error(), `args is [44], must be an object, as {"n": 4}`) {
		t.Errorf("approve with a list: %v", err)
	}
	for _, statement := range []string{
		`select pgexec.approve($1, 'approval-1-4', '{"n": 44}')`,
		`select pgexec.reject($1, 'approval-1-3', 'not today')`,
		`select pgexec.approve($1, 'approval-1-1')`,
	} {
		if _, err := b.pool.Exec(b.ctx, statement, id); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	text := b.answer(id).Text
	lines := strings.Split(text, "\n")
	if lines[0] != `{"n":1}` || lines[1] != `{"n":2}` || !strings.Contains(lines[2], "rejected this call: not today") ||
		!strings.Contains(text, `changed the arguments of this call to {"n":44}`) || !strings.Contains(text, `{"n":44}`) {
		t.Errorf("results %q", lines)
	}
	b.requests()
}

func TestSubAgent_ItsAnswerIsTheResult(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: researcher, turn: 0}
    reply: {calls: [{name: echo, args: {n: 7}}], usage: {input: 10, output: 1}}
  - when: {system: researcher}
    reply: {text: "found {{tool_result}} for {{prompt}}", usage: {input: 10, output: 1}}
  - when: {turn: 0}
    reply: {calls: [{name: research, args: {prompt: rivers}}, {name: research, args: {prompt: lakes}}], usage: {input: 10, output: 1}}
  - reply: {text: "{{tool_result}}", usage: {input: 10, output: 1}}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "research", "agent": "r"}}})
	b.define("r", object{"system": "You are a researcher.", "tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("go")
	if got := b.answer(id); got.Text != "found {\"n\":7} for rivers\nfound {\"n\":7} for lakes" {
		t.Errorf("answer %q", got.Text)
	}
	if run := b.wait(id); run.Spent.InputTokens != 60 || run.Spent.OutputTokens != 6 {
		t.Errorf("spent %+v, want that of the sub-agents too", run.Spent)
	}
}

// An interactive agent would wait for a user, who is not there: as a tool, it answers.
func TestSubAgent_ThatIsInteractiveAnswersOnce(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: friend}
    reply: {text: "hello to {{prompt}}"}
  - when: {turn: 0}
    reply: {calls: [{name: talk, args: {prompt: you}}]}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "talk", "agent": "f"}}})
	b.define("f", object{"system": "You are a friend.", "interactive": true})
	b.replica()
	if got := b.answer(b.ask("go")); got.Text != "hello to you" {
		t.Errorf("answer %+v", got)
	}
}

func TestSubAgent_CancelReachesItsCallsInFlight_C41(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: researcher}
    reply: {calls: [{name: stuck, args: {}}]}
  - reply: {calls: [{name: research, args: {prompt: rivers}}]}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "research", "agent": "r"}}})
	b.define("r", object{"system": "You are a researcher.", "tools": []object{kindTool("stuck")}})
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.replica(func(k *pgexec.Kinds) {
		pgexec.AddKind(k, "stuck", func(ctx context.Context, _ *pgexec.Node, _ json.RawMessage) (json.RawMessage, error) {
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}, nil)
	})
	id := b.ask("go")
	<-begun
	if _, err := b.client.Cancel(b.ctx, id, "enough"); err != nil {
		t.Fatal(err)
	}
	if cause := <-ended; !errors.Is(cause, pgexec.ErrCancelled) {
		t.Errorf("the call ended with %v", cause)
	}
	if run := b.wait(id); run.Status != pgexec.RunCancelled {
		t.Errorf("run is %s", run.Status)
	}
}

func TestQuestion_AsksAPerson(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: ask, args: {question: "Which one?"}}]}
  - reply: {text: "so {{tool_result}}"}
`)
	b.define("a", object{"tools": []object{{"type": "signal", "name": "ask"}}})
	b.replica()
	id := b.ask("go")
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	if err := b.client.Signal(b.ctx, id, "answer", "the blue one", &pgexec.SignalOpts{NodeID: "call-1-1"}); err != nil {
		t.Fatal(err)
	}
	if got := b.answer(id); got.Text != "so the blue one" {
		t.Errorf("answer %q", got.Text)
	}
}

func TestConversation_InSQLIsWhatTheModelSaw(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {text: Looking., calls: [{name: echo, args: {n: 1}}, {name: nothing, args: {}}], usage: {input: 20, output: 3}}
  - reply: {text: It is one., usage: {input: 30, output: 4}}
`)
			b.define("a", object{"provider": provider, "tools": []object{kindTool("echo")}})
			b.replica(addEcho)
			id := b.ask("What is it?")
			b.answer(id)
			got := query[string](b, `select string_agg(concat_ws(' ', role, text, calls #>> '{0,name}', is_error), '|') from pgexec.conversation($1)`, id)
			for _, want := range []string{"user What is it?|assistant Looking. echo|", `{"n": 1}`, "not run", "|assistant It is one."} {
				if !strings.Contains(got, want) {
					t.Errorf("conversation %q, want %q in it", got, want)
				}
			}
			if n := query[int](b, `select sum(input_tokens + output_tokens) from pgexec.conversation($1)`, id); n != 57 {
				t.Errorf("%d tokens, want 57", n)
			}
		})
	}
}

// A turn that comes while an MCP server waits for a person asks nobody: the next
// one does, when the answer is there.
func TestQuestion_OfAnMCPServerWaitsForAPerson(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "deploy", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if answer, ok := req.Params.InputResponses["sure"].(*sdk.ElicitResult); ok {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "deployed: " + answer.Action}}}, nil
			}
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"sure": &sdk.ElicitParams{Message: "Sure?"}}, RequestState: "s"}, nil
		})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: far_deploy, args: {}}, {name: echo, args: {n: 1}}]}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{{"type": "mcp", "name": "far", "url": service.URL}, kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("go")
	b.eventually(`select status = 'parked' and exists (select from pgexec.nodes n where n.run_id = r.run_id and n.node_id = 'turn-2') from pgexec.runs r where run_id = $1`, id)
	if n := len(b.requests()); n != 1 {
		t.Errorf("the model was asked %d times before there is a result", n)
	}
	if err := b.client.Signal(b.ctx, id, "answer", object{"action": "accept"}, &pgexec.SignalOpts{NodeID: "call-1-1-input"}); err != nil {
		t.Fatal(err)
	}
	if got := b.answer(id); got.Text != "deployed: accept\n{\"n\":1}" || got.Turns != 2 {
		t.Errorf("answer %+v", got)
	}
	b.requests()
}

func TestSubAgent_WithAPromptThatIsTooLargeForTheLog(t *testing.T) {
	long := strings.Repeat("river ", 20_000)
	b := setup(t, `
rules:
  - when: {system: researcher}
    reply: {text: "{{prompt}}", chunk: 5000}
  - when: {turn: 0}
    reply: {calls: [{name: research, args: {prompt: "{{prompt}}"}}], chunk: 5000}
  - reply: {text: "{{tool_result}}", chunk: 5000}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "research", "agent": "r", "max_output": 1 << 20}}})
	b.define("r", object{"system": "You are a researcher."})
	b.replica()
	id := b.ask(long)
	if got := b.answer(id); got.Text != long {
		t.Errorf("%d bytes come back of %d", len(got.Text), len(long))
	}
	next := b.start(object{"agent": "a", "prompt": "again", "continue": id})
	b.answer(next)
	b.requests()
}

// A sub-agent that is paused at its limit holds its parent, which is resumed with it.
func TestSubAgent_PausedAtItsLimitGoesOnWithItsParent_C44(t *testing.T) {
	b := setup(t, `
rules:
  - when: {system: researcher, turn: 3}
    reply: {text: found it}
  - when: {system: researcher, user: No tool can be called}
    reply: {text: so far nothing}
  - when: {system: researcher}
    reply: {calls: [{name: echo, args: {n: 1}}]}
  - when: {turn: 0}
    reply: {calls: [{name: research, args: {prompt: rivers}}]}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{{"type": "agent", "name": "research", "agent": "r"}}})
	b.define("r", object{"system": "You are a researcher.", "tools": []object{kindTool("echo")}, "limits": object{"max_turns": 2}})
	b.replica(addEcho)
	id := b.ask("go")
	b.eventually(`select exists (select from pgexec.runs where parent_run_id = $1 and status = 'paused')`, id)
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	query[string](b, `select pgexec.resume($1, add_turns => 5)`, id)
	if got := b.answer(id); got.Text != "found it" {
		t.Errorf("answer %+v", got)
	}
}
