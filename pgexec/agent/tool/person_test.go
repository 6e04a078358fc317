package tool_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// C38, C40: each decision is for one call; what needs none does not wait; the model sees what was decided, and what was changed.
func TestApproval_TheRecordedCallIsWhatRuns_C38(t *testing.T) {
	b := setup(t, echo)
	id := b.start(`"tools": [
		{"type": "http", "name": "pay", "method": "POST", "url": "{URL}/pay", "approval": true, "parameters": {"properties": {"sum": {}}}},
		{"type": "http", "name": "look", "url": "{URL}/look"}
	]`,
		call("pay", `{"sum": 1}`), call("pay", `{"sum": 2, "x": {"$ref": "root#"}}`), call("pay", `{"sum": 3}`), call("pay", `{"sum": 4}`), call("look", `{}`))
	b.parked(id)
	if n := query[int](b, `select count(*)::int from pgexec.nodes where run_id = $1 and node_id like 'call-%'`, id); n != 1 {
		t.Errorf("%d calls are done, want the one that needs no approval", n)
	}
	if n := query[int](b, `select count(*)::int from pgexec.run_log where run_id = $1 and position('{"about":{"tool":"pay"},"args":{"sum":1}}' in record) > 0`, id); n != 1 {
		t.Error("nothing says what is to be approved")
	}
	b.signal(id, "approval", map[string]any{"approve": true}, "approval-1-1")
	b.signal(id, "approval", map[string]any{"approve": true}, "approval-1-2")
	b.signal(id, "approval", map[string]any{"approve": true, "args": map[string]any{"sum": 30}}, "approval-1-3")
	b.signal(id, "approval", map[string]any{"approve": false, "reason": "too much"}, "approval-1-4")
	got := b.results(id)
	want(t, got[0], `POST /pay  {"sum":1}`, false)
	want(t, got[1], `POST /pay  {"sum":2,"x":{"$ref":"root#"}}`, false)
	want(t, got[2], `[a person changed the arguments of this call to {"sum":30}]|POST /pay  {"sum":30}`, false)
	want(t, got[3], `error: not run: a person rejected this call: too much`, true)
	want(t, got[4], `GET /look  `, false)
}

func TestSignal_APersonAnswersEachQuestion(t *testing.T) {
	b := setup(t, http.NotFound)
	id := b.start(`"tools": [{"type": "signal", "name": "ask"}, {"type": "signal", "name": "hurry", "timeout": "20ms"}, {"type": "sleep", "name": "rest"}]`,
		call("ask", `{"question": "Red?"}`), call("ask", `{"question": "Blue?"}`), call("ask", `{"question": ""}`),
		call("hurry", `{"question": "Now?"}`), call("rest", `{"seconds": 0.01}`), call("rest", `{"seconds": "long"}`))
	b.parked(id)
	b.signal(id, "answer", "Yes.", "call-1-2")
	b.signal(id, "answer", map[string]any{"no": 1}, "call-1-1")
	got := b.results(id)
	want(t, got[0], `{"no": 1}`, false)
	want(t, got[1], `Yes.`, false)
	want(t, got[2], `error: the argument question is missing: a text that is not empty`, true)
	want(t, got[3], `error: no signal "answer" within 20ms`, true)
	want(t, got[4], `(the time is over)`, false)
	want(t, got[5], `error: the argument seconds must be a number above 0, at most 2592000`, true)
}

func TestAgent_TheAnswerOfASubAgentIsTheResult(t *testing.T) {
	b := setup(t, http.NotFound)
	pgexec.AddKind(b.kinds, "agent", func(_ context.Context, n *pgexec.Node, in map[string]string) (any, error) {
		if in["prompt"] == "fail" {
			return nil, pgexec.Permanent(context.DeadlineExceeded)
		}
		return map[string]any{"text": in["agent"] + " did " + in["prompt"], "turns": 3}, nil
	}, nil)
	b.exec(`insert into pgexec.agents (name, definition) values ('helper', '{"provider": "openai", "model": "m"}')`)
	id := b.start(`"tools": [{"type": "agent", "name": "help", "agent": "helper", "limits": {"max_tokens": 7}}, {"type": "agent", "name": "asked", "agent": "helper", "approval": true}]`,
		call("help", `{"prompt": "this"}`), call("help", `{"prompt": "fail"}`), call("help", `{}`), call("asked", `{"prompt": "that"}`))
	b.signal(id, "approval", map[string]any{"approve": true}, "approval-1-4")
	got := b.results(id)
	want(t, got[0], "helper did this", false)
	if !got[1].IsError || !strings.Contains(got[1].Text, "deadline exceeded") {
		t.Errorf("a sub-agent that failed: %+v", got[1])
	}
	want(t, got[2], "error: the argument prompt is missing: a text that is not empty", true)
	want(t, got[3], "helper did that", false)
	if n := query[int](b, `select count(*)::int from pgexec.runs where parent_run_id = $1 and max_tokens = 7`, id); n != 2 {
		t.Errorf("%d child runs have the call's limit, want 2", n)
	}
}

func TestKind_OfTheProgramIsATool(t *testing.T) {
	b := setup(t, http.NotFound)
	pgexec.AddKind(b.kinds, "shout", func(_ context.Context, n *pgexec.Node, in json.RawMessage) (string, error) {
		if n.Attempt() < 3 {
			return "", context.DeadlineExceeded
		}
		return strings.ToUpper(string(in)), nil
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MinBackoff: 1}})
	got := b.run(`"tools": [{"type": "kind", "name": "shout", "kind": "shout", "max_attempts": 3}, {"type": "kind", "name": "once", "kind": "shout", "at_most_once": "fail"}]`,
		call("shout", `{"x": "y"}`), call("once", `{}`))
	want(t, got[0], `{"X":"Y"}`, false)
	want(t, got[1], `error: context deadline exceeded`, true)
	for _, own := range []string{"sql", "turn", "tool_sql", "run"} {
		run := b.wait(b.start(`"tools": [{"type": "kind", "name": "x", "kind": "` + own + `"}]`))
		if !strings.Contains(run.Error, `tool x: kind "`+own+`" is one of pgexec's own`) {
			t.Errorf("kind %s: the run is %s: %s", own, run.Status, run.Error)
		}
	}
}
