package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// done is the record of a node that succeeded with an output, and spawned others.
func done(t testing.TB, id, kind, output string, spawned ...*pb.NodeSpec) []byte {
	t.Helper()
	return encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: id, Kind: kind, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Output: jsonPayload(output), Spawned: spawned, FinishedUs: piDay,
	}}})
}

// failed is the record of a node that failed.
func failed(t testing.TB, id, kind, message string) []byte {
	t.Helper()
	return encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: id, Kind: kind, Status: pb.NodeStatus_NODE_STATUS_FAILED, Error: &pb.Error{Message: message}, FinishedUs: piDay,
	}}})
}

// approval is the spec of a node that asks for one.
func approval(id, input string, parents ...string) *pb.NodeSpec {
	return &pb.NodeSpec{Id: id, Kind: "approval", Input: jsonPayload(input), Parents: parents}
}

// agentLog makes an agent's run with this input and these records.
func agentLog(t testing.TB, pool *pgxpool.Pool, input string, records ...[]byte) string {
	t.Helper()
	exec(t, pool, `insert into pgexec.agents values ('a', '{"provider": "openai", "model": "m"}') on conflict do nothing`)
	id := one[string](t, pool, "insert into pgexec.runs (kind, input) values ('agent', $1) returning run_id::text", input)
	exec(t, pool, "insert into pgexec.run_log select $1, n, r from unnest($2::bytea[]) with ordinality x (r, n)", id, records)
	return id
}

// transcript is a conversation in lines.
func transcript(t testing.TB, pool *pgxpool.Pool, id string) string {
	t.Helper()
	return strings.Join(column[string](t, pool, `
		select concat_ws(' | ', seq, node_id, role, text, calls, call_id, case when is_error then 'error' end,
			case when input_tokens is not null then concat_ws('/', input_tokens, cached_tokens, output_tokens, reasoning_tokens, coalesce(cost_usd::text, 'unknown')) end)
		from pgexec.conversation($1)`, id), "\n")
}

func same(t testing.TB, got, want string) {
	t.Helper()
	if want = strings.TrimSpace(strings.ReplaceAll(want, "\n\t\t", "\n")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// C45, C46: each call has one result, whatever became of it.
func TestConversation_EachCallHasAResult_C45_C46(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const usage = `"usage": {"input": 10, "cached_read": 4, "output": 5, "reasoning": 1}, "cost_usd": "0.002"`
	id := agentLog(t, pool, `{"agent": "a", "prompt": "Hello"}`,
		done(t, "root", "agent", `{"agent": "a"}`),
		done(t, "turn-1", "turn", `{"message": {"role": "assistant", "content": "Let me see.", "tool_calls": [
			{"id": "c1", "type": "function", "function": {"name": "http", "arguments": "{\"city\": \"Rome\"}"}},
			{"id": "c2", "type": "function", "function": {"name": "orders", "arguments": "{}"}},
			{"id": "c3", "type": "function", "function": {"name": "refund", "arguments": "{\"n\": 1}"}},
			{"id": "c4", "type": "function", "function": {"name": "nothing", "arguments": "{\"cut"}},
			{"id": "c5", "type": "function", "function": {"name": "late", "arguments": "{}"}}]}, "held": "limit max_tool_calls reached", "held_from": 4, `+usage+`}`),
		done(t, "call-1-2", "tool_sql", `{"command": "SELECT", "rows": [{"id": 1}]}`),
		failed(t, "approval-1-3", "approval", "rejected: too much"),
		done(t, "call-1-1", "tool_http", `{"status": 200, "body": "sunny"}`),
		done(t, "turn-2", "turn", `{"note": "[the limit is near]", "message": {"role": "assistant", "content": [
			{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "It is sunny."},
			{"type": "tool_use", "id": "t1", "name": "files_read", "input": {"a": 1}}]}, "usage": {"input": 20, "output": 6}, "cost_usd": null}`),
		done(t, "call-2-1", "tool_mcp", `{"content": [], "needs": {}}`),
		done(t, "call-2-1-next", "tool_mcp", `{"content": [{"type": "text", "text": "no such file"}, {"$blob": {}}], "is_error": true}`),
		done(t, "inbox-2", "signal", `null`),
		done(t, "compact-2", "compact", `{"summary": "All is well.", "first_kept": 2}`),
		done(t, "message-2", "signal", `{"text": "Thanks"}`),
		failed(t, "turn-3", "turn", "insufficient_quota"),
	)
	same(t, transcript(t, pool, id), `
		1 | root | user | Hello
		2 | turn-1 | assistant | Let me see. | [{"id": "c1", "args": {"city": "Rome"}, "name": "http"}, {"id": "c2", "args": {}, "name": "orders"}, {"id": "c3", "args": {"n": 1}, "name": "refund"}, {"id": "c4", "args": "{\"cut", "name": "nothing"}, {"id": "c5", "args": {}, "name": "late"}] | 10/4/5/1/0.002
		2 | turn-1 | tool | not run: rejected: too much | c3 | error
		2 | turn-1 | tool | not run: there is no tool "nothing" | c4 | error
		2 | turn-1 | tool | not run: limit max_tool_calls reached | c5 | error
		3 | call-1-2 | tool | [{"id": 1}] | c2
		5 | call-1-1 | tool | sunny | c1
		6 | turn-2 | note | [the limit is near]
		6 | turn-2 | assistant | It is sunny. | [{"id": "t1", "args": {"a": 1}, "name": "files_read"}] | 20/6/unknown
		8 | call-2-1-next | tool | no such file
		[an image] | t1 | error
		10 | compact-2 | summary | All is well.
		11 | message-2 | user | Thanks
		12 | turn-3 | assistant | insufficient_quota | error
	`)
}

// Whatever form a result has, psql says what the model saw.
func TestConversation_ResultsOfEveryForm(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	outputs := []struct{ kind, output, want string }{
		{"tool_mcp", `{"content": [], "structured": {"n": 12345678901234567890}}`, `{"n": 12345678901234567890}`},
		{"tool_mcp", `{"content": []}`, `(no output)`},
		{"tool_mcp", `{"content": [{"type": "resource_link", "uri": "file:///x"}, {"$blob": {"media_type": "image/png"}}]}`, `{"uri": "file:///x", "type": "resource_link"}` + "\n\t\t[an image]"},
		{"tool_http", `{"status": 204, "headers": {}, "body": ""}`, `(status 204, no body)`},
		{"tool_http", `{"status": 200, "headers": {"content-type": "image/png"}, "body_base64": "AA=="}`, `[an image]`},
		{"tool_http", `{"status": 200, "headers": {}, "body": {"a": 1}}`, `{"a": 1}`},
		{"tool_sql", `{"command": "INSERT", "columns": [], "rows": [], "row_count": 2}`, `INSERT: 2 rows`},
		{"sleep", `null`, `(the time is over)`},
		{"mine", `null`, `(no output)`},
		{"mine", `{"content": "x"}`, `{"content": "x"}`},
	}
	var calls, want []string
	records := [][]byte{done(t, "root", "agent", `{"tools": [{"name": "f"}]}`), nil}
	for i, o := range outputs {
		calls = append(calls, fmt.Sprintf(`{"id": "c%d", "function": {"name": "f", "arguments": "{}"}}`, i+1))
		records = append(records, done(t, fmt.Sprintf("call-1-%d", i+1), o.kind, o.output))
		want = append(want, fmt.Sprintf("%d | call-1-%d | tool | %s | c%d", i+3, i+1, o.want, i+1))
	}
	calls = append(calls, `{"id": "c0", "function": {"name": "f", "arguments": "{\"__unusable_arguments\": \"5\", \"__reason\": \"the arguments are no object\"}"}}`)
	records[1] = done(t, "turn-1", "turn", `{"message": {"content": "", "tool_calls": [`+strings.Join(calls, ",")+`]}}`)
	records = append(records, done(t, "turn-2", "turn", `{"message": {"content": "Well."}}`))
	id := agentLog(t, pool, `{"agent": "a", "prompt": "Hello"}`, records...)
	got := transcript(t, pool, id)
	for _, line := range append(want, "2 | turn-1 | tool | not run: the arguments are no object | c0 | error") {
		if !strings.Contains(got, strings.ReplaceAll(line, "\t", "")) {
			t.Errorf("there is no line %s in\n%s", line, got)
		}
	}
}

func TestConversation_BeginsWithWhatItContinues(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id := agentLog(t, pool, `{"agent": "a", "messages": [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": [{"text": "Look:"}, {"image": {"url": "https://example.org/a.png"}}]}]}`,
		done(t, "root", "agent", `{"history": [{"role": "user", "parts": [{"text": "Before"}]},
			{"role": "assistant", "raw": {"content": null, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]}},
			{"role": "tool", "parts": [{"text": "done"}], "call_id": "c", "name": "f"}]}`),
		// A call that is on its way has no result yet.
		done(t, "turn-1", "turn", `{"message": {"content": "", "tool_calls": [{"id": "d", "function": {"name": "f", "arguments": "{}"}}]}}`))
	same(t, transcript(t, pool, id), `
		1 | root | user | Before
		1 | root | assistant | [{"id": "c", "args": {}, "name": "f"}]
		1 | root | tool | done | c
		1 | root | assistant | Hi
		1 | root | user | Look:
		[an image]
		2 | turn-1 | assistant |  | [{"id": "d", "args": {}, "name": "f"}]
	`)
	if got := transcript(t, pool, one[string](t, pool, "insert into pgexec.runs (kind) values ('x') returning run_id::text")); got != "" {
		t.Errorf("a run of another kind has the conversation %s", got)
	}
	fresh := agentLog(t, pool, `{"agent": "a", "prompt": "Hello"}`)
	same(t, transcript(t, pool, fresh), `root | user | Hello`)
}

// What is too large for the log is read from where it is.
func TestConversation_ReadsBlobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id := agentLog(t, pool, `{"agent": "a", "prompt": "Hello"}`, done(t, "root", "agent", `{}`),
		done(t, "turn-1", "turn", `{"message": {"content": "short"}}`))
	long := strings.Repeat("long", 20_000)
	fork := one[string](t, pool, "select pgexec.fork($1, replace_node => 'turn-1', replace_output => jsonb_build_object('message', jsonb_build_object('content', $2::text)))::text", id, long)
	same(t, transcript(t, pool, fork), "1 | root | user | Hello\n2 | turn-1 | assistant | "+long)
}

func openApprovals(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return strings.Join(column[string](t, pool, `select concat_ws(' | ', a.node_id, a.tool, a.args, a.about, a.since = timestamptz '2026-03-14 15:09:26.535897Z', a.agent)
		from pgexec.approvals a order by a.node_id`), "\n")
}

// C38, C40: parallel approvals are told apart by their nodes.
func TestApprovals_AreListedAndDecidedOnce_C38_C40(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id := agentLog(t, pool, `{"agent": "a", "prompt": "Hello"}`, done(t, "root", "agent", `{}`),
		done(t, "turn-1", "turn", `{}`,
			approval("approval-1-1", `{"about": {"tool": "refund"}, "args": {"n": 1}}`, "turn-1"),
			approval("approval-1-2", `{"about": {"tool": "refund"}, "args": {"n": 2}}`, "turn-1"),
			approval("approval-1-3", `{}`, "turn-1"),
			approval("later", `{}`, "turn-1", "approval-1-2"),
			&pb.NodeSpec{Id: "seen", Kind: "approval", Input: jsonPayload(`{"about": "text"}`), Parents: []string{"approval-1-3"}, Join: pb.Join_JOIN_ALL_DONE}),
		failed(t, "approval-1-3", "approval", "rejected"))
	exec(t, pool, "update pgexec.runs set may_ask = true") // as who gives the run back does
	same(t, openApprovals(t, pool), `
		approval-1-1 | refund | {"n": 1} | {"tool": "refund"} | t | a
		approval-1-2 | refund | {"n": 2} | {"tool": "refund"} | t | a
		seen | null | "text" | t | a
	`)

	if got := one[string](t, pool, "select pgexec.approve($1, 'approval-1-1')", id); got != "approved" {
		t.Error(got)
	}
	for range 2 {
		if got := one[string](t, pool, "select pgexec.reject($1, 'approval-1-2', 'too much')", id); got != "rejected" {
			t.Error(got)
		}
	}
	exec(t, pool, `select pgexec.approve($1, 'seen', '{"n": 3}')`, id)
	same(t, strings.Join(column[string](t, pool, "select concat_ws(' ', node_id, name, payload) from pgexec.signals order by node_id"), "\n"), `
		approval-1-1 approval {"approve": true}
		approval-1-2 approval {"reason": "too much", "approve": false}
		seen approval {"args": {"n": 3}, "approve": true}
	`)
	for call, words := range map[string]string{
		"approve($1, 'approval-1-2')": `approval approval-1-2 of run ` + id + ` has been decided already: {"reason": "too much", "approve": false}`,
		"approve($1, 'approval-1-3')": `has no open approval approval-1-3`,
		"reject($1, 'later')":         `has no open approval later`,
	} {
		if got := refused(t, pool, "select pgexec."+call, id); !strings.Contains(got, words) {
			t.Errorf("%s: %s, want %s", call, got, words)
		}
	}

	// After a retry it is asked again.
	exec(t, pool, "insert into pgexec.run_log values ($1, 4, $2)", id, encode(t, &pb.Record{Body: &pb.Record_Control{Control: &pb.Control{
		Kind: pb.ControlKind_CONTROL_KIND_RETRIED, NodeIds: []string{"approval-1-3"},
	}}}))
	if got := one[string](t, pool, "select pgexec.approve($1, 'approval-1-3')", id); got != "approved" {
		t.Error(got)
	}
	exec(t, pool, "update pgexec.runs set status = 'cancelled', finished_at = now()")
	same(t, openApprovals(t, pool), "")
}
