package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent"
	"github.com/pgexec/runtime/pgexec/kinds"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// patience bounds every wait in these tests; nothing is asserted about time.
const patience = time.Minute

// bundle is a migrated database, a client on it, and a model that follows a script.
type bundle struct {
	t      *testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	client *pgexec.Client
	model  *pgexectest.Model
}

func setup(t *testing.T, script string) *bundle {
	t.Helper()
	t.Parallel()
	return setupSerial(t, script)
}

// setupSerial is setup for a test that changes the environment.
func setupSerial(t *testing.T, script string) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	t.Cleanup(cancel)
	pool := pgtest.DB(t)
	client := pgexec.NewClient(pool, &pgexec.ClientConfig{Logger: testLogger(t)})
	t.Cleanup(client.Close)
	return &bundle{t: t, ctx: ctx, pool: pool, client: client, model: pgexectest.NewModel(t, script)}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// replica is a replica in this process that runs agents, and kinds of the test's own.
type replica struct {
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
}

// replica starts a replica, which is drained at the latest when the test ends.
func (b *bundle) replica(adds ...func(*pgexec.Kinds)) *replica {
	b.t.Helper()
	return b.replicaWith(agent.Config{}, adds...)
}

// replicaWith is replica with a configuration of its own.
func (b *bundle) replicaWith(cfg agent.Config, adds ...func(*pgexec.Kinds)) *replica {
	b.t.Helper()
	k := pgexec.NewKinds()
	for _, add := range adds {
		add(k)
	}
	stock, err := kinds.Add(k, &kinds.Config{Pool: b.pool, HTTPAllow: []string{"127.0.0.1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.Pool, cfg.Logger = b.pool, testLogger(b.t)
	agents, err := agent.Add(k, stock, &cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	rt, err := pgexec.New(b.pool, &pgexec.Config{Kinds: k, Logger: testLogger(b.t), Grace: patience, Linger: 10 * time.Millisecond})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{t: b.t, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := rt.Run(ctx); err != nil {
			b.t.Errorf("replica: %v", err)
		}
		agents.Close()
		stock.Close()
	}()
	b.t.Cleanup(r.drain)
	return r
}

// drain stops the replica as SIGTERM does and waits for it.
func (r *replica) drain() {
	r.stop()
	select {
	case <-r.done:
	case <-time.After(2 * patience):
		r.t.Error("the replica does not stop")
	}
}

// object is a JSON object.
type object = map[string]any

// define inserts an agent on the scripted model; more adds to its definition.
func (b *bundle) define(name string, more object) {
	b.t.Helper()
	def := object{"provider": "openai", "base_url": b.model.URL + "/v1", "model": "any"}
	if more["provider"] == "anthropic" {
		def["base_url"] = b.model.URL
	}
	for k, v := range more {
		def[k] = v
	}
	if _, err := b.pool.Exec(b.ctx, `insert into pgexec.agents (name, definition) values ($1, $2)`, name, def); err != nil {
		b.t.Fatal(err)
	}
}

// kindTool is a tool that is a kind of the test.
func kindTool(name string) object {
	return object{"type": "kind", "name": name, "kind": name, "parameters": object{"type": "object"}}
}

func (b *bundle) start(input object, mods ...func(*pgexec.StartOpts)) pgexec.RunID {
	b.t.Helper()
	opts := &pgexec.StartOpts{}
	for _, mod := range mods {
		mod(opts)
	}
	id, err := b.client.Start(b.ctx, "agent", input, opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bundle) ask(prompt string) pgexec.RunID {
	b.t.Helper()
	return b.start(object{"agent": "a", "prompt": prompt})
}

func (b *bundle) wait(id pgexec.RunID) *pgexec.Run {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	run, err := b.client.Wait(ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return run
}

// answer waits for a run that must succeed, and returns its result.
func (b *bundle) answer(id pgexec.RunID) (out struct {
	Text    string
	Stop    string
	Refusal string
	Turns   int
	Calls   int `json:"tool_calls"`
},
) {
	b.t.Helper()
	run := b.wait(id)
	if err := run.Output(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// paused waits until a run is paused and returns why.
func (b *bundle) paused(id pgexec.RunID) string {
	b.t.Helper()
	b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
	run, err := b.client.Get(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return run.Reason
}

// output is the output of a node that is done.
func (b *bundle) output(id pgexec.RunID, node string) object {
	b.t.Helper()
	for _, n := range pgexectest.Nodes(b.t, b.pool, id) {
		if string(n.ID) == node {
			var out object
			if err := json.Unmarshal(n.Output, &out); err != nil {
				b.t.Fatalf("output of %s: %v", node, err)
			}
			return out
		}
	}
	b.t.Fatalf("node %s is not done", node)
	return nil
}

// ids are the nodes of a run that are done.
func (b *bundle) ids(id pgexec.RunID) (ids []string) {
	b.t.Helper()
	for _, n := range pgexectest.Nodes(b.t, b.pool, id) {
		ids = append(ids, string(n.ID))
	}
	return ids
}

// query reads one value.
func query[T any](b *bundle, statement string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.ctx, statement, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// eventually waits until the condition, a statement that returns a boolean, holds; null does not.
func (b *bundle) eventually(statement string, args ...any) {
	b.t.Helper()
	b.poll(fmt.Sprintf("%s %v", statement, args), func() bool {
		holds := query[*bool](b, statement, args...)
		return holds != nil && *holds
	})
}

// poll waits until something holds.
func (b *bundle) poll(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s", what)
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatal(b.ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// sent is one message of a request, in OpenAI's form.
type sent struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

// text is the content where it is a text.
func (s sent) text() string {
	var text string
	_ = json.Unmarshal(s.Content, &text)
	return text
}

// request is what the model was asked at last, or in the n-th of its requests.
func (b *bundle) requests() (all [][]sent) {
	b.t.Helper()
	for _, r := range b.model.Requests() {
		if r.Problem != "" {
			b.t.Errorf("request %d is refused: %s\n%s", r.Number, r.Problem, r.Body)
		}
		var body struct{ Messages []sent }
		if err := json.Unmarshal([]byte(r.Body), &body); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, body.Messages)
	}
	return all
}
