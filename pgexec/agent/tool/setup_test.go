package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
	"github.com/pgexec/runtime/pgexec/agent/tool"
	"github.com/pgexec/runtime/pgexec/kinds"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// bundle is a replica that makes one turn of calls, and a service for them.
type bundle struct {
	t      *testing.T
	pool   *pgxpool.Pool
	env    *tool.Env
	kinds  *pgexec.Kinds
	client *pgexec.Client
	url    string
}

// script is the input of a run: a definition's fields beside the model's, and the calls of its turn.
type script struct {
	Definition json.RawMessage
	Calls      []llm.Call
}

// seen is what the model sees of a call.
type seen struct {
	Text    string
	IsError bool
	Images  []llm.Image
}

func setup(t *testing.T, handler http.HandlerFunc) *bundle {
	t.Helper()
	t.Parallel()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b := &bundle{t: t, pool: pgexectest.DB(t), kinds: pgexec.NewKinds(), url: server.URL}
	stock, err := kinds.Add(b.kinds, &kinds.Config{Pool: b.pool, HTTPAllow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stock.Close)
	b.env = &tool.Env{Stock: stock, Secrets: &definition.Secrets{Dir: t.TempDir()}, MCP: mcp.NewPool(mcp.Config{HTTPClient: stock.Client()})}
	t.Cleanup(b.env.MCP.Close)
	tool.Add(b.kinds, b.env)
	pgexec.AddKind(b.kinds, "script", b.script, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 1}}) // nothing comes to a replica that lacks it
	pgexec.AddKind(b.kinds, "calls", b.calls, nil)
	pgexec.AddKind(b.kinds, "see", b.see, nil)
	return b
}

type rootOutput struct {
	Definition json.RawMessage `json:"definition"`
	Tools      []tool.Spec     `json:"tools"`
}

func (b *bundle) script(ctx context.Context, n *pgexec.Node, in script) (*rootOutput, error) {
	def, err := definition.Parse(in.Definition)
	if err != nil {
		return nil, pgexec.Permanent(err)
	}
	specs, err := tool.Pin(ctx, b.env, def)
	n.Spawn("calls", in.Calls, nil)
	return &rootOutput{in.Definition, specs}, err
}

func specsOf(n *pgexec.Node) ([]tool.Spec, error) {
	root, _ := n.Ancestor(pgexec.RootID)
	var out rootOutput
	err := root.Output(&out)
	return out.Tools, err
}

func (b *bundle) calls(_ context.Context, n *pgexec.Node, calls []llm.Call) (any, error) {
	specs, err := specsOf(n)
	after := []pgexec.NodeRef{n.Ref()}
	made := tool.Calls{Node: n, Specs: specs, Turn: 1}
	for i, call := range calls {
		if ref, ok := made.Spawn(i+1, call); ok {
			after = append(after, ref)
		}
	}
	n.Spawn("see", calls, &pgexec.SpawnOpts{After: after, Join: pgexec.AllDone})
	return nil, err
}

func (b *bundle) see(ctx context.Context, n *pgexec.Node, calls []llm.Call) ([]seen, error) {
	specs, err := specsOf(n)
	if err != nil {
		return nil, err
	}
	nodes := map[pgexec.NodeID]*pgexec.Ancestor{}
	var walk func([]*pgexec.Ancestor)
	walk = func(list []*pgexec.Ancestor) {
		for _, a := range list {
			nodes[a.ID()] = a
			walk(a.Parents())
		}
	}
	walk(n.Parents())
	open, err := tool.Open(nodes, 1, len(calls))
	if err != nil {
		return nil, err
	}
	if open != nil {
		n.Spawn("see", calls, &pgexec.SpawnOpts{After: append(open, n.Ref()), Join: pgexec.AllDone})
	}
	var out []seen
	made := tool.Calls{Node: n, Specs: specs, Turn: 1, Ancestors: nodes}
	for i, call := range calls {
		m, err := made.Result(ctx, i+1, call)
		if err != nil {
			return nil, err
		}
		if m.CallID != call.ID || m.Role != llm.RoleTool || len(m.Parts) == 0 {
			return nil, pgexec.Permanent(fmt.Errorf("a result that answers no call: %+v", m))
		}
		out = append(out, see(&m))
	}
	return out, nil
}

func see(m *llm.Message) seen {
	s := seen{IsError: m.IsError}
	var texts []string
	for _, p := range m.Parts {
		if p.Image != nil {
			s.Images = append(s.Images, *p.Image)
		} else {
			texts = append(texts, p.Text)
		}
	}
	s.Text = strings.Join(texts, "|")
	return s
}

// defined is a definition with these fields beside the model's. {URL} in them is the service's.
func (b *bundle) defined(fields string) json.RawMessage {
	fields = strings.ReplaceAll(fields, "{URL}", b.url)
	return json.RawMessage(`{"provider": "openai", "model": "m", ` + fields + `}`)
}

// call is a call of a tool, with an id of its own.
func call(name, args string) llm.Call {
	return llm.Call{ID: "id-" + name + args, Name: name, Args: json.RawMessage(args)}
}

// serve starts the replica.
func (b *bundle) serve() {
	if b.client == nil {
		b.client = pgexectest.Serve(b.t, b.pool, b.kinds)
	}
}

func (b *bundle) start(fields string, calls ...llm.Call) pgexec.RunID {
	b.t.Helper()
	b.serve()
	id, err := b.client.Start(b.t.Context(), "script", script{b.defined(fields), calls}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// wait returns the run when it has ended.
func (b *bundle) wait(id pgexec.RunID) *pgexec.Run {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	run, err := b.client.Wait(ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return run
}

// results returns what the model sees in the end.
func (b *bundle) results(id pgexec.RunID) []seen {
	b.t.Helper()
	run := b.wait(id)
	var out []seen
	if err := run.Output(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// run makes the calls and returns what the model sees of them.
func (b *bundle) run(fields string, calls ...llm.Call) []seen {
	b.t.Helper()
	return b.results(b.start(fields, calls...))
}

func (b *bundle) exec(statement string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), statement, args...); err != nil {
		b.t.Fatal(err)
	}
}

func query[T any](b *bundle, statement string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.t.Context(), statement, args...).Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// parked waits until the run waits for somebody.
func (b *bundle) parked(id pgexec.RunID) {
	b.t.Helper()
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
}

// eventually waits until a question about the database is answered with true.
func (b *bundle) eventually(question string, args ...any) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	for !query[bool](b, question, args...) {
		select {
		case <-deadline:
			b.t.Fatalf("not within a minute: %s", question)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bundle) signal(id pgexec.RunID, name string, payload any, node pgexec.NodeID) {
	b.t.Helper()
	if err := b.client.Signal(b.t.Context(), id, name, payload, &pgexec.SignalOpts{NodeID: node}); err != nil {
		b.t.Fatal(err)
	}
}

// want compares what the model sees of one call.
func want(t *testing.T, got seen, text string, isError bool) {
	t.Helper()
	if got.Text != text || got.IsError != isError {
		t.Errorf("the model sees %q (error: %t), want %q (error: %t)", got.Text, got.IsError, text, isError)
	}
}
