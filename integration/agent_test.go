package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent"
	"github.com/pgexec/runtime/pgexec/kinds"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// replicaSQLRole is the role of sql tools, in the environment of a replica of agents.
const replicaSQLRole = "PGEXEC_REPLICA_SQL_ROLE"

// agentReplicaProcess is the whole of a replica that runs agents.
func agentReplicaProcess() {
	if err := serveAgents(); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

func serveAgents() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(replicaURL))
	if err != nil {
		return err
	}
	defer pool.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	k := pgexec.NewKinds()
	pgexec.AddKind(k, "step", func(ctx context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
		select {
		case <-time.After(rand.N(longestStep)):
			return in, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, nil)
	stock, err := kinds.Add(k, &kinds.Config{Pool: pool, HTTPAllow: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	defer stock.Close()
	agents, err := agent.Add(k, stock, &agent.Config{Pool: pool, SQLRole: os.Getenv(replicaSQLRole), Logger: log})
	if err != nil {
		return err
	}
	defer agents.Close()
	rt, err := pgexec.New(pool, &pgexec.Config{Kinds: k, PoisonAfter: 1000, Logger: log})
	if err != nil {
		return err
	}
	return rt.Run(ctx)
}

// lookups is a service that is called by a tool, and notes by which keys.
type lookups struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]int
}

func newLookups(t *testing.T) *lookups {
	l := &lookups{keys: make(map[string]int)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.keys[r.Header.Get("Idempotency-Key")]++
		l.mu.Unlock()
		select {
		case <-time.After(rand.N(longestStep)):
			fmt.Fprintf(w, "looked up %s", r.URL.Query().Get("n"))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(l.Close)
	return l
}

// marathon is the model of agents that call three tools in each of so many turns.
func marathon(turns int) string {
	return fmt.Sprintf(`
rules:
  - when: {turn: 0-%d}
    reply:
      thinking: "Thinking <about> {{turn}}."
      text: "turn {{turn}}"
      calls:
        - {name: lookup, args: {n: "{{turn}}"}}
        - {name: note, args: {run: "{{prompt}}", n: "{{turn}}"}}
        - {name: step, args: {n: "{{turn}}"}}
      usage: {input: 100, output: 10}
      chunk: 5
      pause: 20ms
  - reply: {text: done, usage: {input: 100, output: 10}}
`, turns-1)
}

// Agents go on whatever becomes of their replicas. Two of them are killed in turn
// every two seconds, if they get anything done, while agents take 60 turns with three tools each. Then every
// conversation is valid and complete (C46, C51), each call is in the log once
// (G1), what tools wrote with their record is there once (G6), each call had one
// idempotency key on all of its attempts (C43), and tokens are counted once.
func TestAgents_SixtyTurnsWithReplicasKilledEveryTwoSeconds(t *testing.T) {
	t.Parallel()
	turns, runs := 60, 3
	if testing.Short() {
		turns = 12
	}
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	model := pgexectest.NewModel(t, marathon(turns))
	service := newLookups(t)
	role := prepareMarathon(ctx, t, pool, model.URL, service.URL)

	client := newClient(t, pool)
	var ids []pgexec.RunID
	for i := range runs {
		ids = append(ids, start(ctx, t, client, "agent", map[string]any{"agent": []string{"openai", "anthropic"}[i%2], "prompt": fmt.Sprint("run ", i)}))
	}
	kills := killAgentReplicas(ctx, t, pool, role)
	t.Logf("%d replicas were killed; the model was asked %d times for %d turns", kills, len(model.Requests()), runs*(turns+1))

	for i, id := range ids {
		run := succeed(ctx, t, client, id)
		var answer struct {
			Text  string
			Turns int
			Calls int `json:"tool_calls"`
		}
		if err := run.Output(&answer); err != nil || answer.Text != "done" || answer.Turns != turns+1 || answer.Calls != 3*turns {
			t.Errorf("run %d: answer %+v, %v", i, answer, err)
		}
		if in, out := run.Spent.InputTokens, run.Spent.OutputTokens; in != int64(100*(turns+1)) || out != int64(10*(turns+1)) {
			t.Errorf("run %d spent %d and %d tokens, want %d and %d", i, in, out, 100*(turns+1), 10*(turns+1))
		}
		calls := query[int](ctx, t, pool, `select count(*) from pgexec.nodes where run_id = $1 and node_id like 'call-%'`, id)
		if n := query[int](ctx, t, pool, `select count(distinct node_id) from pgexec.nodes where run_id = $1 and node_id like 'call-%'`, id); n != calls || n != 3*turns {
			t.Errorf("run %d: %d calls in %d records, want %d", i, n, calls, 3*turns)
		}
		prompt := fmt.Sprint("run ", i)
		if n := query[int](ctx, t, pool, `select count(*) from notes where run = $1`, prompt); n != turns {
			t.Errorf("run %d: %d notes, want %d", i, n, turns)
		}
		if n := query[int](ctx, t, pool, `select count(distinct n) from notes where run = $1`, prompt); n != turns {
			t.Errorf("run %d: notes of %d turns, want %d", i, n, turns)
		}
		checkConversation(t, model, prompt, turns)
	}
	service.mu.Lock()
	defer service.mu.Unlock()
	if len(service.keys) != runs*turns {
		t.Errorf("the service saw %d idempotency keys, want %d", len(service.keys), runs*turns)
	}
}

// prepareMarathon defines the agents, and a table and a role for their tools.
func prepareMarathon(ctx context.Context, t *testing.T, pool *pgxpool.Pool, model, service string) (role string) {
	t.Helper()
	role = "notes_" + strings.ReplaceAll(query[string](ctx, t, pool, `select gen_random_uuid()::text`), "-", "")
	for _, statement := range []string{
		`create table notes (run text not null, n text not null)`,
		`create role ` + role,
		`grant insert on notes to ` + role,
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		// Roles are the server's: this one must not outlive the test.
		if _, err := pool.Exec(context.WithoutCancel(ctx), `drop owned by `+role+`; drop role `+role); err != nil {
			t.Errorf("drop role: %v", err)
		}
	})
	schema := func(names ...string) map[string]any {
		properties := make(map[string]any)
		for _, name := range names {
			properties[name] = map[string]any{"type": "string"}
		}
		return map[string]any{"type": "object", "properties": properties}
	}
	tools := []map[string]any{
		{"type": "http", "name": "lookup", "url": service + "/", "parameters": schema("n"), "max_attempts": 20},
		{"type": "sql", "name": "note", "statement": "insert into public.notes values ($1, $2)", "args": []string{"run", "n"}, "write": true, "parameters": schema("run", "n")},
		{"type": "kind", "name": "step", "kind": "step", "parameters": schema("n")},
	}
	for provider, path := range map[string]string{"openai": "/v1", "anthropic": ""} {
		definition := map[string]any{
			"provider": provider, "base_url": model + path, "model": "any", "system": "Go on.", "tools": tools,
			"limits": map[string]any{"max_turns": 100, "max_tool_calls": 1000},
		}
		if _, err := pool.Exec(ctx, `insert into pgexec.agents (name, definition) values ($1, $2)`, provider, definition); err != nil {
			t.Fatal(err)
		}
	}
	return role
}

// killAgentReplicas has two replicas work until all runs have ended, and kills one of
// them every two seconds, which is replaced at once. On a machine that is so busy that
// two seconds bring no record, it waits for one. It returns how many were killed.
func killAgentReplicas(ctx context.Context, t *testing.T, pool *pgxpool.Pool, role string) (kills int) {
	t.Helper()
	begin := func() *pgtest.Child {
		return pgtest.StartChild(t, "agent replica", replicaURL+"="+pgtest.URL(t), replicaSQLRole+"="+role)
	}
	replicas := []*pgtest.Child{begin(), begin()}
	defer func() {
		for _, r := range replicas {
			r.Kill()
		}
	}()
	const nodes = `select count(*) from pgexec.nodes`
	next, done := time.Now().Add(2*time.Second), 0
	for query[bool](ctx, t, pool, `select exists (select from pgexec.runs where finished_at is null)`) {
		if time.Now().After(next) && query[int](ctx, t, pool, nodes) > done {
			victim := kills % 2
			replicas[victim].Kill()
			replicas[victim] = begin()
			kills++
			next, done = time.Now().Add(2*time.Second), query[int](ctx, t, pool, nodes)
		}
		pause(ctx, t)
	}
	return kills
}

// checkConversation holds all requests of a run to be valid, and each to begin as
// the shorter ones do; the last one has every result.
func checkConversation(t *testing.T, model *pgexectest.Model, prompt string, turns int) {
	t.Helper()
	var bodies []string
	for _, r := range model.Requests() {
		if r.Problem != "" {
			t.Fatalf("the model refused a request: %s\n%s", r.Problem, r.Body)
		}
		if strings.Contains(r.Body, `"`+prompt+`"`) {
			bodies = append(bodies, r.Body)
		}
	}
	slices.SortFunc(bodies, func(a, b string) int { return len(a) - len(b) })
	bodies = slices.Compact(bodies)
	if len(bodies) != turns+1 {
		t.Errorf("%s: %d different requests for %d turns", prompt, len(bodies), turns+1)
	}
	var before string
	for i, body := range bodies {
		if !strings.HasPrefix(body, before) {
			t.Fatalf("%s: request %d does not begin as the one before:\n%s\n%s", prompt, i, before, body)
		}
		before = body[:strings.LastIndex(body, `],"stream":true`)]
	}
	last := bodies[len(bodies)-1]
	for i := range turns {
		if want := fmt.Sprintf("looked up %d\"", i); !strings.Contains(last, want) {
			t.Errorf("%s: the last request has no result %q", prompt, want)
		}
	}
}
