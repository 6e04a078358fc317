package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/sql"
)

// serving starts a replica on the test's database and returns how commands name
// that database.
func serving(t *testing.T) (replica *process, db []string) {
	t.Helper()
	pgtest.DB(t)
	url := pgtest.URL(t)
	replica = start(t, []string{"PGEXEC_DATABASE_URL=" + url}, "serve", "--http", "off")
	replica.line("replica is ready")
	return replica, []string{"--database-url", url}
}

const three = `{"nodes": [
	{"id": "a", "kind": "sql", "input": {"sql": "select 1 as x"}},
	{"id": "b", "kind": "sql", "after": ["a"], "input": {"sql": "select $1::int + 1 as y", "params": [{"$ref": "a#/rows/0/x"}]}}]}`

func TestRun_StartWaitShowLs(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	with := func(args ...string) []string { return append(db, args...) }
	file := filepath.Join(t.TempDir(), "graph.json")
	if err := os.WriteFile(file, []byte(three), 0o600); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(mustInvoke(t, with("run", "start", "graph", "--input", "@"+file, "--label", "who=me")...))
	if out := mustInvoke(t, with("run", "wait", id)...); !strings.Contains(out, `"rows":[{"y":2}]`) {
		t.Errorf("wait: %s", out)
	}
	got := invokeWith(t, three, with("run", "start", "graph", "--input", "-", "--wait")...)
	if got.code != exitOK || !strings.Contains(got.out, `{"y":2}`) || !strings.Contains(got.err, "started run ") {
		t.Errorf("start --wait: %+v", got)
	}

	out := mustInvoke(t, with("run", "show", id)...)
	for _, words := range []string{id, "succeeded", `{"who":"me"}`, "root", "sql", `"row_count"`} {
		if !strings.Contains(out, words) {
			t.Errorf("show lacks %q: %s", words, out)
		}
	}
	var shown struct {
		Status string
		Labels map[string]string
		Nodes  []nodeJSON
	}
	if err := json.Unmarshal([]byte(mustInvoke(t, with("run", "show", id, "-o", "json")...)), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Status != "succeeded" || shown.Labels["who"] != "me" || len(shown.Nodes) != 3 || shown.Nodes[2].NodeID != "b" {
		t.Errorf("show -o json: %+v", shown)
	}

	var listed []runJSON
	if err := json.Unmarshal([]byte(mustInvoke(t, with("run", "ls", "-o", "json", "--status", "succeeded,failed", "--kind", "graph")...)), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 2 || listed[1].RunID.String() != id {
		t.Errorf("ls -o json: %+v", listed)
	}
	if out := mustInvoke(t, with("run", "ls", "--limit", "1")...); strings.Count(out, "\n") != 2 || strings.Contains(out, id) {
		t.Errorf("ls --limit 1: %s", out)
	}
	if out := mustInvoke(t, with("run", "ls", "--status", "paused", "-o", "json")...); strings.TrimSpace(out) != "[]" {
		t.Errorf("ls of none: %s", out)
	}
}

// What a run has spent is what its row says: failed attempts and child runs too, which are no nodes that are done.
func TestRunShow_SpentIsWhatTheRunHasSpent(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	db := []string{"--database-url", pgtest.URL(t)}
	id := startRun(t, db, "k", "{}")
	_, err := pool.Exec(t.Context(), `update pgexec.runs set nodes_done = 1, input_tokens = 90, output_tokens = 10, cost_usd = 0.25, unpriced = 2`)
	if err != nil {
		t.Fatal(err)
	}
	if out := mustInvoke(t, append(db, "run", "show", id)...); !strings.Contains(out, "\nspent    1 node, 100 tokens, $0.25, 2 at unknown prices\n") {
		t.Errorf("show says of what was spent: %s", out)
	}
}

// What others have written does not steer the terminal of whoever looks, nor does it pass for lines of the program's own.
func TestRunShowWait_NothingSteersTheTerminal(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	db := []string{"--database-url", pgtest.URL(t)}
	id := startRun(t, db, "k", "{\"\u009b2J\": \"\u007f\"}", "--label", "a=\u009b2J")
	_, err := pool.Exec(t.Context(), `update pgexec.runs set kind = e'k\u009b2J', status = 'failed', finished_at = now(),
		reason = e'why\r\u009b2J', error = e'boom\x1b[31m\u009b2J\nstatus   succeeded'`)
	if err != nil {
		t.Fatal(err)
	}
	show := mustInvoke(t, append(db, "run", "show", id)...)
	wait := invoke(t, append(db, "run", "wait", id)...)
	for what, said := range map[string]string{"show": show, "ls": mustInvoke(t, append(db, "run", "ls")...), "wait": wait.err} {
		if strings.ContainsAny(said, "\x1b\r\x7f\u009b") || !strings.Contains(said, "boom [31m 2J") {
			t.Errorf("%s says %q", what, said)
		}
	}
	if wait.code != exitRunEnded || !strings.Contains(show, "\nerror    boom [31m 2J\n         status   succeeded\n") {
		t.Errorf("exit code %d; show says %s", wait.code, show)
	}
}

// However long an output is, one line shows its beginning, and JSON has it whole.
func TestRunShow_LongOutputs(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	id := startRun(t, db, "sql", `{"sql": "select repeat('é', 10000) as x"}`)
	s := until(t, db, id, "succeeded")
	if len(s.Nodes) != 1 || !strings.Contains(string(s.Nodes[0].Output), strings.Repeat("é", 10000)) {
		t.Errorf("%d nodes", len(s.Nodes))
	}
	nodes, err := readNodes[nodeLine](t.Context(), pgtest.DB(t), sql.CliNodeLines, id, outcomeChars+1)
	if err != nil || len(nodes) != 1 || len([]rune(nodes[0].Outcome)) != outcomeChars+1 {
		t.Errorf("%+v, %v", nodes, err)
	}
	out := mustInvoke(t, append(db, "run", "show", id)...)
	if !strings.Contains(out, "é…\n") || len(out) > 2000 {
		t.Errorf("show says %d bytes: %.2000s", len(out), out)
	}
}

// A run that fails exits with 3 and its error; the result's bytes pass untouched.
func TestRunWait_ExitCodes(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	with := func(args ...string) []string { return append(db, args...) }
	got := invoke(t, with("run", "start", "sql", "--input", `{"sql": "select 1/0"}`, "--wait")...)
	if got.code != exitRunEnded || !strings.Contains(got.err, "division by zero") || got.out != "" {
		t.Errorf("failed run: %+v", got)
	}
	got = invoke(t, with("run", "start", "sql", "--input", `{"sql": "select 1/0"}`, "--wait", "-o", "json")...)
	var run runJSON
	if err := json.Unmarshal([]byte(got.out), &run); err != nil || got.code != exitRunEnded || run.Status != "failed" {
		t.Errorf("failed run as JSON: %+v: %v", got, err)
	}

	got = invoke(t, with("run", "start", "no-such-kind", "--wait", "--timeout", "100ms")...)
	if got.code != exitTimeout || !strings.Contains(got.err, "has not ended within 100ms") || !strings.Contains(got.err, "pgexec run wait") {
		t.Errorf("timeout: %+v", got)
	}
	const unknown = "01a227c9-321b-7171-a88e-87ed0cc80761"
	for _, command := range []string{"wait", "show"} {
		got = invoke(t, with("run", command, unknown)...)
		if got.code != exitFailure || !strings.Contains(got.err, "run not found") || !strings.Contains(got.err, "pgexec run ls") {
			t.Errorf("%s of an unknown run: %+v", command, got)
		}
	}
}

// Who waits for a run that nobody executes is told so.
func TestRunWait_SaysWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	db := "PGEXEC_DATABASE_URL=" + pgtest.URL(t)
	p := start(t, []string{db}, "run", "start", "graph", "--queue", "lonely", "--wait")
	p.line("is queued: no replica for queue lonely")
	p = start(t, []string{db}, "run", "start", "graph", "--run-at", "2100-01-01T00:00:00Z", "--wait")
	p.line("is queued: scheduled at 2100-01-01T")
}

// Ctrl-C ends a wait, not the run.
func TestRunWait_Interrupted(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	db := "PGEXEC_DATABASE_URL=" + pgtest.URL(t)
	p := start(t, []string{db}, "run", "start", "graph", "--input", three, "--wait")
	p.line("started run ")
	p.signal(syscall.SIGINT)
	if code := p.exit(promptly); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	p.line("the run goes on")
}

func TestRunStart_KeyTimeQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	db := []string{"--database-url", pgtest.URL(t)}
	args := append(db, "run", "start", "k", "--idempotency-key", "once", "--queue", "slow", "--priority", "4", "--run-at", "1h", "-o", "json")
	first, second := mustInvoke(t, args...), mustInvoke(t, args...)
	if first != second {
		t.Errorf("the same key made two runs: %s and %s", first, second)
	}
	got := invoke(t, append(args, "--input", "[1]")...)
	if got.code != exitFailure || !strings.Contains(got.err, "another key") {
		t.Errorf("the same key with another input: %+v", got)
	}
	var queue string
	var priority int
	var delay float64
	err := pool.QueryRow(t.Context(), "select queue, priority, extract(epoch from run_at - created_at) from pgexec.runs").Scan(&queue, &priority, &delay)
	if err != nil || queue != "slow" || priority != 4 || delay < 3590 || delay > 3601 {
		t.Errorf("queue %s, priority %d, due after %f s: %v", queue, priority, delay, err)
	}
	got = invoke(t, append(db, "run", "start", "k", "--queue", "No Queue")...)
	if got.code != exitUsage || !strings.Contains(got.err, "No Queue") {
		t.Errorf("a bad queue: %+v", got)
	}
}

// The database's address comes from the flag, else from the variable.
func TestDatabaseURL_FlagWinsOverVariable(t *testing.T) {
	pgtest.DB(t)
	t.Setenv("PGEXEC_DATABASE_URL", pgtest.URL(t))
	mustInvoke(t, "run", "ls")
	t.Setenv("PGEXEC_DATABASE_URL", "postgres://"+closedPort(t)+"/x")
	mustInvoke(t, "run", "ls", "--database-url", pgtest.URL(t))
	if got := invoke(t, "run", "ls"); got.code != exitFailure {
		t.Errorf("the variable is not read: %+v", got)
	}
}

// A command that is interrupted while it connects ends at once.
func TestCommands_InterruptedWhileConnecting(t *testing.T) {
	t.Parallel()
	address, taken := silent(t)
	stop := newInterrupt(context.Background())
	done := make(chan int)
	go func() {
		done <- execute(stop, []string{"--database-url", "postgres://" + address + "/x", "run", "ls"},
			stdio{in: strings.NewReader(""), out: t.Output(), err: t.Output()})
	}()
	<-taken
	stop.signal(syscall.SIGINT, func(int) { t.Error("exited") })
	select {
	case code := <-done:
		if code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
	case <-time.After(promptly):
		t.Error("still connecting")
	}
}
