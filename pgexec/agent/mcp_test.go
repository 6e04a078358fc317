package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pgexec/runtime/pgexec"
)

// deployment is an MCP server whose tool wants to hear from a person before it deploys; it returns a picture too.
func deployment(t *testing.T) string {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "deploy", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			answer, ok := req.Params.InputResponses["sure"].(*sdk.ElicitResult)
			if !ok {
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"sure": &sdk.ElicitParams{Message: "Sure?"}}, RequestState: "v2"}, nil
			}
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: req.Params.RequestState + " is deployed: " + answer.Action},
				&sdk.ImageContent{Data: []byte("\x89PNG\r\n\x1a\n"), MIMEType: "image/png"},
			}}, nil
		})
	s := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(s.Close)
	return s.URL
}

// A call that needs input holds back the next turn and nothing else, takes up no replica meanwhile, and ends on another one.
func TestMCP_ACallThatNeedsInputGoesOnElsewhere(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply:
      calls:
        - {name: ops_deploy, args: {version: 2}}
        - {name: echo, args: {n: 1}}
  - reply: {text: "{{tool_result}}"}
`)
	b.define("a", object{"tools": []object{kindTool("echo"), {"type": "mcp", "name": "ops", "url": deployment(t)}}})
	first := b.replica(addEcho)
	id := b.ask("go")
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	first.drain()
	b.replica(addEcho)
	if err := b.client.Signal(b.ctx, id, "answer", object{"action": "accept", "content": object{}}, &pgexec.SignalOpts{NodeID: "call-1-1-input"}); err != nil {
		t.Fatal(err)
	}
	got := b.answer(id)
	if !strings.HasPrefix(got.Text, "v2 is deployed: accept") || !strings.Contains(got.Text, `{"n":1}`) || got.Turns != 2 {
		t.Errorf("answer %+v", got)
	}
	requests := b.requests()
	if last := requests[len(requests)-1]; len(requests) != 2 || !strings.Contains(string(last[len(last)-1].Content), "data:image/png;base64,") {
		t.Errorf("the model was asked %d times, and saw no image in %+v", len(requests), last)
	}
	if said := query[string](b, `select string_agg(text, '|') from pgexec.conversation($1) where role = 'tool'`, id); !strings.Contains(said, "v2 is deployed: accept") {
		t.Errorf("psql shows the results %q", said)
	}
}
