package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pgexec/runtime/pgexec"
)

type mcpTool func(*sdk.CallToolRequest) (*sdk.CallToolResult, error)

// setupMCP is a bundle whose service is an MCP server with these tools.
func setupMCP(t *testing.T, tools map[string]mcpTool) *bundle {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	for name, run := range tools {
		server.AddTool(&sdk.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return run(req) })
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	return setup(t, handler.ServeHTTP)
}

func said(parts ...sdk.Content) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{Content: parts}, nil
}

func words(s string) sdk.Content { return &sdk.TextContent{Text: s} }

const serverTool = `{"type": "mcp", "name": "far", "url": "{URL}/mcp", "max_attempts": 2`

func TestMCP_ToolsArePinnedAndCalled(t *testing.T) {
	tools := map[string]mcpTool{
		"a.b": func(req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return said(words("called with "+string(req.Params.Arguments)), &sdk.ImageContent{Data: png, MIMEType: "image/png"})
		},
		"fail": func(*sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{words("no such city")}}, nil
		},
		"hidden": func(*sdk.CallToolRequest) (*sdk.CallToolResult, error) { return said(words("never")) },
	}
	b := setupMCP(t, tools)
	got := b.run(`"tools": [`+serverTool+`, "tools": ["a.b", "fail"]}]`, call("far_a_b", `{"n": 1}`), call("far_fail", `{}`), call("far_hidden", `{}`))
	want(t, got[0], `called with {"n":1}`, false)
	if len(got[0].Images) != 1 || string(got[0].Images[0].Data) != string(png) {
		t.Errorf("images: %+v", got[0].Images)
	}
	want(t, got[1], "error:|no such city", true)
	want(t, got[2], `error: there is no tool "far_hidden"; the tools are far_a_b, far_fail`, true)
	for definition, wrong := range map[string]string{
		serverTool + `, "tools": ["nope"]}`:                              `tool far: the MCP server has no tool "nope"; it has a.b, fail, hidden`,
		`{"type": "mcp", "name": "near", "server": "rm -rf"}`:            "this replica's configuration has no command of that name",
		serverTool + `}, {"type": "sleep", "name": "far_fail"}`:          `tool "fail" of an MCP server and tool far_fail are both called far_fail`,
		`{"type": "mcp", "name": "in", "url": "http://192.0.2.1:1/mcp"}`: "refused to connect to 192.0.2.1:1",
	} {
		if run := b.wait(b.start(`"tools": [` + definition + `]`)); !strings.Contains(run.Error, wrong) {
			t.Errorf("%s: the run is %s: %s, want %q", definition, run.Status, run.Error, wrong)
		}
	}
	if run := b.wait(b.start(`"tools": [` + serverTool + `}], "http_allow": ["example.org"]`)); !strings.Contains(run.Error, "http_allow") {
		t.Errorf("a server that the definition does not allow: %s", run.Error)
	}
}

// A server that needs input has a person asked, and its call goes on with the answer, however often it asks.
func TestMCP_ARequestForInputWaitsForAPerson(t *testing.T) {
	var calls atomic.Int32
	b := setupMCP(t, map[string]mcpTool{"deploy": func(req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		calls.Add(1)
		state := req.Params.RequestState
		if answer, ok := req.Params.InputResponses["sure"].(*sdk.ElicitResult); ok {
			state += "+" + answer.Action
		}
		if strings.Count(state, "+") == 2 {
			return said(words(state + " with " + string(req.Params.Arguments)))
		}
		if state == "" {
			state = "begun"
		}
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"sure": &sdk.ElicitParams{Message: "Sure?"}}, RequestState: state}, nil
	}})
	id := b.start(`"tools": [`+serverTool+`}]`, call("far_deploy", `{"x": {"$ref": "root#"}}`))
	for _, node := range []pgexec.NodeID{"call-1-1-input", "call-1-1-next-input"} {
		b.signal(id, "answer", map[string]any{"action": "accept", "content": map[string]any{}}, node)
	}
	want(t, b.results(id)[0], `begun+accept+accept with {"x":{"$ref":"root#"}}`, false)
	if n := calls.Load(); n != 3 {
		t.Errorf("the server was called %d times, want 3", n)
	}
}

// A call whose answer was lost may have taken effect: it is made again only if the server says that this makes no difference.
func TestMCP_ACallThatMayHaveRunIsNotRepeated(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	calls := map[string]int{}
	for name, hints := range map[string]*sdk.ToolAnnotations{"pay": nil, "look": {ReadOnlyHint: true}} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: hints}, nil)
	}
	var mu sync.Mutex
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true})
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range []string{"pay", "look"} {
				if bytes.Contains(body, []byte(`"name":"`+name+`"`)) {
					calls[name]++
				}
			}
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	})
	got := b.run(`"tools": [`+serverTool+`}]`, call("far_pay", `{}`), call("far_look", `{}`))
	if !got[0].IsError || !strings.HasSuffix(got[0].Text, "; the tool may have taken effect, so it is not called again") || !got[1].IsError {
		t.Errorf("the model sees %+v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if calls["pay"] != 1 || calls["look"] != 2 {
		t.Errorf("calls: %v, want pay once and look twice", calls)
	}
}

// So does one whose result cannot be stored.
func TestMCP_ACallWhoseResultCannotBeKeptIsNotRepeated(t *testing.T) {
	var calls atomic.Int32
	var b *bundle
	b = setupMCP(t, map[string]mcpTool{"pay": func(*sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		calls.Add(1)
		b.exec(`alter table pgexec.blob_chunks rename to gone`)
		return said(&sdk.ImageContent{Data: []byte("png"), MIMEType: "image/png"})
	}})
	got := b.run(`"tools": [`+serverTool+`}]`, call("far_pay", `{}`))
	if !got[0].IsError || !strings.Contains(got[0].Text, "the result could not be kept: ") || calls.Load() != 1 {
		t.Errorf("after %d calls the model sees %+v", calls.Load(), got)
	}
}

// What one tool of a server leaves in its session is there for the others: a browser, say, that one opens and another reads.
func TestMCP_TheToolsOfAServerShareASession(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range []string{"open", "read"} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return said(words(name))
			})
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	var begun atomic.Int32
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"server/discover"`)) { // what each begins with
			begun.Add(1)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	})
	got := b.run(`"tools": [`+serverTool+`}]`, call("far_open", `{}`), call("far_read", `{}`))
	want(t, got[0], "open", false)
	want(t, got[1], "read", false)
	if n := begun.Load(); n != 1 {
		t.Errorf("%d sessions were begun", n)
	}
}

func TestMCP_AToolThatNoProviderTakesIsNamed(t *testing.T) {
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&m) // what is no request is answered alike
		result := `{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}`
		if m.Method == "tools/list" {
			result = `{"tools": [{"name": "odd", "inputSchema": {"type": "array"}}, {"name": "fine"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "server/discover":
			fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "error": {"code": -32601, "message": "unknown"}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "result": %s}`, m.ID, result)
		}
	})
	run := b.wait(b.start(`"tools": [` + serverTool + `}]`))
	if !strings.Contains(run.Error, `tool far: tool "odd" of the MCP server has a schema that is not one of an object`) {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
	if got := b.run(`"tools": [` + serverTool + `, "tools": ["fine"]}]`); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}
