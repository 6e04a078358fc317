package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolArgs are the arguments of all tools of the test server.
type toolArgs struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
	Text  string `json:"text"`
}

func (a toolArgs) json() json.RawMessage {
	data, _ := json.Marshal(a)
	return data
}

type toolFunc func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error)

func textResult(format string, args ...any) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil
}

// mark adds a line to a file: an effect that can be counted.
func mark(file, text string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, text)
}

var testTools = map[string]toolFunc{
	"echo": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		return textResult("%s", a.Text)
	},
	"pid": func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error) {
		return textResult("%d", os.Getpid())
	},
	"count": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		mark(a.File, "ran")
		return textResult("counted")
	},
	"block": func(ctx context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		mark(a.File, "started")
		for ctx.Err() == nil && !released(a.File) {
			poll(ctx)
		}
		return textResult("released")
	},
	"exit": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		mark(a.File, "ran")
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(3)
		return nil, nil
	},
	"fail": func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error) {
		res, err := textResult("no such city")
		res.IsError = true
		return res, err
	},
	"refuse": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32000, Message: "not today, " + a.Text}
	},
	"big": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		return textResult("%s", strings.Repeat("x", a.Bytes))
	},
	"ask": ask,
	"shed": func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{}, RequestState: "later"}, nil
	},
	"elicit": func(ctx context.Context, req *sdk.CallToolRequest, _ toolArgs) (*sdk.CallToolResult, error) {
		if _, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Sure?"}); err != nil {
			res, _ := textResult("nobody to ask: %v", err)
			res.IsError = true
			return res, nil
		}
		return textResult("asked")
	},
	"visit": func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error) {
		return nil, &jsonrpc.Error{
			Code: sdk.CodeURLElicitationRequired, Message: "sign in first",
			Data: json.RawMessage(`{"elicitations":[{"mode":"url","message":"Sign in","url":"https://example.com/in","elicitationId":"e1"}]}`),
		}
	},
	"mutter": func(_ context.Context, _ *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		for range max(1, a.Bytes/100) {
			fmt.Fprintln(os.Stderr, "the key is", os.Getenv("TEST_KEY"), strings.Repeat("y", 80))
		}
		fmt.Fprintln(os.Stderr, a.Text)
		return textResult("HOME=%t DATABASE=%q", os.Getenv("HOME") != "", os.Getenv("PGEXEC_DATABASE_URL"))
	},
	"drop": func(_ context.Context, req *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
		mark(a.File, "ran")
		req.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: time.Millisecond})
		return textResult("after a break")
	},
	"child": func(context.Context, *sdk.CallToolRequest, toolArgs) (*sdk.CallToolResult, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), modeVar+"=sleep")
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return textResult("%d %d", os.Getpid(), cmd.Process.Pid)
	},
}

// ask needs a person's word, in a protocol that has results which ask.
func ask(_ context.Context, req *sdk.CallToolRequest, a toolArgs) (*sdk.CallToolResult, error) {
	answer, ok := req.Params.InputResponses["confirm"].(*sdk.ElicitResult)
	if !ok {
		return &sdk.CallToolResult{
			InputRequests: sdk.InputRequestMap{"confirm": &sdk.ElicitParams{Message: "Deploy " + a.Text + "?"}},
			RequestState:  "state of " + a.Text,
		}, nil
	}
	return textResult("%s %v with %s", answer.Action, answer.Content["ok"], req.Params.RequestState)
}

// newTestServer returns a server that speaks some versions of the protocol, by default all.
func newTestServer(versions ...string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ServerOptions{
		SupportedProtocolVersions: versions, PageSize: 4,
	})
	yes := true
	for name, run := range testTools {
		tool := &sdk.Tool{
			Name: name, Description: "does " + name,
			InputSchema: json.RawMessage(`{"type":"object", "properties":{"text":{"type":"string","description":"<b>"},"file":{"type":"string"}}}`),
		}
		if name == "echo" {
			tool.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: &yes}
		}
		s.AddTool(tool, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var a toolArgs
			if err := json.Unmarshal(req.Params.Arguments, &a); err != nil {
				return nil, err
			}
			return run(ctx, req, a)
		})
	}
	return s
}

// serveStdio is the whole life of a test process.
func serveStdio(mode string) {
	ctx := context.Background()
	switch mode {
	case "sdk":
		_ = newTestServer().Run(ctx, &sdk.StdioTransport{})
	case "legacy":
		_ = newTestServer(lastLegacy).Run(ctx, &sdk.StdioTransport{})
	case "sleep", "stubborn":
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "replica":
		serveReplica()
	default:
		serveByHand(mode)
	}
}

// serveByHand is a server that no SDK would be: it ends when it hears of
// server/discover, never answers it, talks beside the protocol, or stops reading.
func serveByHand(mode string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<30)
	for in.Scan() {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(in.Bytes(), &req); err != nil {
			log.Fatal(err)
		}
		switch {
		case req.Method == "server/discover" && mode == "dies":
			os.Exit(1)
		case req.Method == "server/discover" && mode == "silent":
		case mode == "broken":
			fmt.Fprintln(os.Stderr, "cannot read /etc/x.conf, key", os.Getenv("TEST_KEY"))
			os.Exit(1)
		case req.Method == "initialize":
			reply(req.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"1"}}`)
		case req.Method == "notifications/initialized" && mode == "deaf":
			select {}
		case req.Method == "tools/call":
			if mode == "chatty" {
				fmt.Println("Loading model…")
				fmt.Println()
			}
			reply(req.ID, `{"content":[{"type":"text","text":"by hand"}]}`)
		case req.ID != nil:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", req.ID)
		}
	}
}

func reply(id json.RawMessage, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

// serveReplica is a replica with a stdio server; it prints the pids of the server
// and its child, and waits to be killed.
func serveReplica() {
	exe := os.Args[0]
	p := NewPool(Config{Stdio: map[string]Server{"s": {Command: []string{exe}, Env: []string{modeVar + "=sdk"}}}})
	res, err := p.Call(context.Background(), Server{Name: "s"}, "pid", nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Parts[0].Text)
	select {}
}
