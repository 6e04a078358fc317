package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

// startRun starts a run and returns its id.
func startRun(t *testing.T, db []string, kind, input string, flags ...string) string {
	t.Helper()
	args := append(append([]string{}, db...), "run", "start", kind, "--input", input)
	return strings.TrimSpace(mustInvoke(t, append(args, flags...)...))
}

// shown is what `run show -o json` says.
type shown struct {
	runJSON
	Nodes       []nodeJSON
	Descendants []runJSON
}

func show(t *testing.T, db []string, id string) shown {
	t.Helper()
	var s shown
	if err := json.Unmarshal([]byte(mustInvoke(t, append(append([]string{}, db...), "run", "show", id, "-o", "json")...)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// until waits until a run has that status.
func until(t *testing.T, db []string, id, status string) shown {
	t.Helper()
	var s shown
	within(t, "run "+id+" is "+status, func() bool {
		s = show(t, db, id)
		return string(s.Status) == status
	})
	return s
}

// What the database answers is printed; what cannot be done exits with 1.
func TestRunControl_AnswersAndExitCodes(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	waits := `{"nodes": [{"id": "approve", "kind": "signal", "input": {"name": "approval"}}]}`
	id := startRun(t, db, "graph", waits)
	ask := func(want string, code int, args ...string) {
		t.Helper()
		got := invoke(t, append(append([]string{}, db...), append([]string{"run"}, args...)...)...)
		if said := got.out + got.err; got.code != code || !strings.Contains(said, want) || (code == 0) != (got.err == "") {
			t.Errorf("%v: exit code %d, %q, %q; want %d and %q", args, got.code, got.out, got.err, code, want)
		}
	}
	parked := until(t, db, id, "parked")
	if parked.Reason == nil || !strings.Contains(*parked.Reason, `approve waits for signal "approval"`) || parked.RunAt != nil {
		t.Errorf("reason %v, due %v", parked.Reason, parked.RunAt)
	}
	ask("already parked", 0, "resume", id)
	ask("paused", 0, "pause", id, "--reason", "lunch")
	ask("already paused", 0, "pause", id)
	ask("is paused: nothing to retry: nothing has changed", 1, "retry", id)
	ask("sent", 0, "signal", id, "approval", "--node", "approve", "--payload", `{"ok": true}`, "--dedupe-key", "k")
	ask("sent", 0, "signal", id, "approval", "--node", "approve", "--payload", `{"ok": false}`, "--dedupe-key", "k")
	ask("resumed", 0, "resume", id)
	if out := mustInvoke(t, append(db, "run", "wait", id)...); strings.TrimSpace(out) != `{"ok": true}` {
		t.Errorf("the wait's output is %s", out)
	}
	for _, verb := range []string{"cancel", "pause", "resume"} {
		ask("already succeeded: nothing has changed", 1, verb, id)
	}
	ask("is succeeded: nothing to retry", 0, "retry", id)
	fork := strings.TrimSpace(mustInvoke(t, append(db, "run", "fork", id, "--replace-output", `approve={"ok": "never"}`)...))
	if out := mustInvoke(t, append(db, "run", "wait", fork)...); strings.TrimSpace(out) != `{"ok": "never"}` {
		t.Errorf("the fork's output is %s", out)
	}
	ask("at_seq 99 is not in the log", 1, "fork", id, "--at-seq", "99")
	ask("has already succeeded: a signal can reach it no more", 1, "signal", id, "approval")

	second := startRun(t, db, "graph", waits)
	until(t, db, second, "parked")
	ask(`"answer": "cancelling"`, 0, "cancel", second, "--reason", "no need", "-o", "json")
	if s := until(t, db, second, "cancelled"); s.Error == nil || *s.Error != "cancelled: no need" {
		t.Errorf("cancelled with %v", s.Error)
	}
	ask("already cancelled", 0, "cancel", second)
	ask("already cancelled: nothing has changed", 1, "resume", second)
	ask("is cancelled: nothing to retry: nothing has changed", 1, "retry", second)

	const unknown = "01a227c9-321b-7171-a88e-87ed0cc80761"
	for _, verb := range []string{"cancel", "pause", "resume", "retry"} {
		ask("run not found", 1, verb, unknown)
	}
	ask("pgexec run ls", 1, "signal", unknown, "x")
}

// A failed run is retried, a limited one is resumed with more.
func TestRunControl_RetryAndRaisedLimits(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	pool := pgtest.DB(t)
	id := startRun(t, db, "sql", `{"sql": "select n from shelf"}`)
	until(t, db, id, "failed")
	if _, err := pool.Exec(t.Context(), `create table public.shelf as select 7 as n`); err != nil {
		t.Fatal(err)
	}
	if out := mustInvoke(t, append(db, "run", "retry", id)...); out != "retrying\n" {
		t.Errorf("retry says %q", out)
	}
	if s := until(t, db, id, "succeeded"); !strings.Contains(string(s.Result), `"n": 7`) {
		t.Errorf("result %s", s.Result)
	}

	id = startRun(t, db, "graph", three, "--max-nodes", "2", "--max-cost-usd", "0.5", "--max-wall", "10m", "--deadline", "1h", "--max-parallel", "3", "--max-tokens", "9")
	s := until(t, db, id, "paused")
	if *s.MaxNodes != 2 || *s.MaxCostUSD != 0.5 || *s.MaxWallMs != 600_000 || *s.MaxParallel != 3 || *s.MaxTokens != 9 || s.Deadline == nil {
		t.Errorf("limits %+v", s.runJSON)
	}
	out := mustInvoke(t, append(db, "run", "show", id)...)
	for _, words := range []string{"limit max_nodes reached: 2 of 2", "9 tokens, $0.5, 2 nodes, 10 m 00 s active, deadline in", "spent    2 nodes"} {
		if !strings.Contains(out, words) {
			t.Errorf("show lacks %q: %s", words, out)
		}
	}
	if out := mustInvoke(t, append(db, "run", "resume", id, "--add-nodes", "5", "--deadline", "2h")...); out != "resumed\n" {
		t.Errorf("resume says %q", out)
	}
	if s := until(t, db, id, "succeeded"); *s.MaxNodes != 7 || s.NodesDone != 3 {
		t.Errorf("limit %d, %d nodes", *s.MaxNodes, s.NodesDone)
	}
}

// The tree of a run is listed under it.
func TestRunLsShow_Tree(t *testing.T) {
	t.Parallel()
	_, db := serving(t)
	inner := `{"nodes": [{"id": "deep", "kind": "run", "input": {"kind": "sql", "input": {"sql": "select 3 as n"}}}]}`
	id := startRun(t, db, "graph", `{"nodes": [
		{"id": "left", "kind": "run", "input": {"kind": "graph", "input": `+inner+`}},
		{"id": "right", "kind": "run", "input": {"kind": "sql", "input": {"sql": "select 4 as n"}}, "after": ["left"]}]}`)
	other := startRun(t, db, "sql", `{"sql": "select 1"}`)
	until(t, db, id, "succeeded")
	until(t, db, other, "succeeded")

	s := show(t, db, id)
	if len(s.Descendants) != 3 {
		t.Fatalf("descendants %+v", s.Descendants)
	}
	left, deep, right := s.Descendants[0], s.Descendants[1], s.Descendants[2]
	if *left.ParentNodeID != "left" || *deep.ParentRunID != left.RunID || deep.Depth != 2 || *right.ParentNodeID != "right" {
		t.Errorf("descendants %+v", s.Descendants)
	}
	lines := strings.Split(mustInvoke(t, append(db, "run", "ls", "--tree")...), "\n")
	for i, begin := range []string{"RUN ID", other, id, "└ " + left.RunID.String(), "  └ " + deep.RunID.String(), "└ " + right.RunID.String()} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], begin) {
			t.Fatalf("line %d begins not with %q:\n%s", i, begin, strings.Join(lines, "\n"))
		}
	}
	out := mustInvoke(t, append(db, "run", "show", id)...)
	if !strings.Contains(out, "CHILD RUN") || !strings.Contains(out, "\n"+left.RunID.String()+" ") ||
		!strings.Contains(out, "\n└ "+deep.RunID.String()) {
		t.Errorf("show: %s", out)
	}
	if out := mustInvoke(t, append(db, "run", "show", deep.RunID.String())...); !strings.Contains(out, "parent   "+left.RunID.String()+", node deep") {
		t.Errorf("show of a child: %s", out)
	}
	var listed []runJSON
	if err := json.Unmarshal([]byte(mustInvoke(t, append(db, "run", "ls", "-o", "json")...)), &listed); err != nil || len(listed) != 5 {
		t.Errorf("%d runs listed: %v", len(listed), err)
	}
}
