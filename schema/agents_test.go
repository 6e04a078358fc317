package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// newAgent defines an agent; fields are those beside provider and model.
func newAgent(t testing.TB, pool *pgxpool.Pool, name, fields string) {
	t.Helper()
	exec(t, pool, `insert into pgexec.agents (name, definition) values ($1, $2)`, name, `{"provider": "openai", "model": "m-1"`+fields+`}`)
}

// refused executes what is to fail and returns the words.
func refused(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) string {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	if err == nil {
		t.Errorf("%s %v passes", sql, args)
		return ""
	}
	return err.Error()
}

func startAgent(t testing.TB, pool *pgxpool.Pool, columns, values string) string {
	t.Helper()
	return one[string](t, pool, fmt.Sprintf(`insert into pgexec.runs (kind, input%s) values ('agent', '{"agent": "a", "prompt": "x"}'%s) returning run_id::text`, columns, values))
}

func TestAgents_ADefinitionIsRefusedWithWordsThatNameTheField(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const insert = `insert into pgexec.agents (name, definition) values ('researcher', $1)`
	got := refused(t, pool, insert, `{"provider": "openai", "model": "m", "tools": [{"type": "sql", "name": "a"}]}`)
	if !strings.Contains(got, "agent researcher: tools[0].statement is missing") {
		t.Error(got)
	}
	exec(t, pool, insert, `{"provider": "openai", "model": "m"}`)
	got = refused(t, pool, `update pgexec.agents set definition = jsonb_set(definition, '{limits}', '{"max_turns": -1}')`)
	if !strings.Contains(got, "agent researcher: limits.max_turns is -1, must be at least 1") {
		t.Error(got)
	}
	exec(t, pool, `update pgexec.agents set created_at = 'epoch', updated_at = 'epoch'`)
	if !one[bool](t, pool, `select created_at > now() - interval '1 hour' and updated_at >= created_at from pgexec.agents`) {
		t.Error("times are what somebody wrote into them")
	}
}

func TestAgentRuns_AreRefusedWithWords(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	newAgent(t, pool, "a", "")
	const insert = `insert into pgexec.runs (kind, input) values ('agent', $1)`
	ended, running := startAgent(t, pool, "", ""), startAgent(t, pool, "", "")
	exec(t, pool, "update pgexec.runs set status = 'succeeded', finished_at = now() where run_id = $1", ended)
	exec(t, pool, insert, `{"agent": "a", "prompt": "go on", "continue": "`+ended+`"}`)
	for input, words := range map[string]string{
		`{"agent": "b", "prompt": "x"}`: `agent "b" does not exist: insert it into pgexec.agents`,
		`{"agent": "a"}`:                `input of a run of kind agent: the input must have exactly one of prompt, messages`,
		`{"agent": "a", "prompt": "x", "continue": "` + running + `"}`: `continue: ` + running + ` is not an agent's run of yours that has ended`,
	} {
		if got := refused(t, pool, insert, input); !strings.Contains(got, words) {
			t.Errorf("%s: %s, want %s", input, got, words)
		}
	}
	role, other := newRole(t, pool)
	exec(t, pool, "grant usage on schema pgexec to "+role)
	exec(t, pool, "grant insert on pgexec.runs to "+role)
	exec(t, other, insert, `{"agent": "a", "prompt": "hello"}`)
	if got := refused(t, other, insert, `{"agent": "a", "prompt": "tell me", "continue": "`+ended+`"}`); !strings.Contains(got, "of yours") {
		t.Errorf("another role's conversation: %s", got)
	}
}

func limitsOf(t testing.TB, pool *pgxpool.Pool, id string) string {
	t.Helper()
	return one[string](t, pool, `select concat_ws(' ', max_turns, max_tool_calls, coalesce(max_tokens::text, '-'), coalesce(max_cost_usd::text, '-'), coalesce(max_wall_ms::text, '-'))
		from pgexec.runs where run_id = $1`, id)
}

func TestAgentRuns_HaveTheLimitsOfTheirDefinition(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	newAgent(t, pool, "a", "")
	exec(t, pool, "insert into pgexec.model_prices (provider, model, input, output) values ('openai', 'm-*', 1, 2)")
	if got := limitsOf(t, pool, startAgent(t, pool, "", "")); got != "50 200 - - -" {
		t.Errorf("by default: %s", got)
	}
	exec(t, pool, `update pgexec.agents set definition = definition || '{"limits": {"max_turns": 5, "max_tool_calls": 6, "max_tokens": 700, "max_cost_usd": 0.5, "max_wall": "1h1m1s1ms"}}'`)
	parent := startAgent(t, pool, "", "")
	if got := limitsOf(t, pool, parent); got != "5 6 700 0.5 3661001" {
		t.Errorf("of the definition: %s", got)
	}
	if got := limitsOf(t, pool, startAgent(t, pool, ", max_turns, max_tokens, max_wall_ms", ", 50, 7000, 9000000")); got != "50 6 7000 0.5 9000000" {
		t.Errorf("of the row: %s", got)
	}
	child := startAgent(t, pool, ", parent_run_id, parent_node_id, max_tokens, max_cost_usd", ", '"+parent+"', 'n', 7000, 0.25")
	if got := limitsOf(t, pool, child); got != "5 6 700 0.25 3661001" {
		t.Errorf("of a sub-agent: %s", got)
	}

	// A fork has them too, whatever has become of the agent.
	exec(t, pool, "insert into pgexec.run_log values ($1, 1, 'x')", parent)
	exec(t, pool, "delete from pgexec.agents")
	fork := one[string](t, pool, "select pgexec.fork($1)::text", parent)
	if got := limitsOf(t, pool, fork); got != "5 6 700 0.5 3661001" {
		t.Errorf("of a fork: %s", got)
	}
	if !one[bool](t, pool, "select forked_from::text = $2 from pgexec.runs where run_id = $1", fork, parent) {
		t.Error("the fork does not say of what")
	}
}

func TestResume_RaisesTurnsAndToolCalls(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	newAgent(t, pool, "a", "")
	id := startAgent(t, pool, "", "")
	exec(t, pool, "update pgexec.runs set status = 'paused' where run_id = $1", id)
	if got := one[string](t, pool, "select pgexec.resume($1, add_turns => 10, add_tool_calls => 20)", id); got != "resumed" {
		t.Error(got)
	}
	if got := one[string](t, pool, "select pgexec.resume($1, add_turns => 1)", id); got != "limits raised" {
		t.Error(got)
	}
	if got := limitsOf(t, pool, id); got != "61 220 - - -" {
		t.Errorf("limits are %s", got)
	}
	if got := refused(t, pool, "select pgexec.resume($1, add_turns => -1)", id); !strings.Contains(got, "raised, not lowered") {
		t.Error(got)
	}
}

// A price that is not known is visible, and never taken for zero.
func TestModelCost_ByTheLongestName(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `insert into pgexec.model_prices (provider, model, input, cached, cache_write, output) values
		('openai', 'm*', 1, null, null, 10), ('openai', 'm-2*', 2, 0.5, 4, 20), ('openai', 'm-2-mini', 0, null, null, 0), ('anthropic', 'm-2', 100, null, null, 100)`)
	for _, tc := range []struct{ provider, model, cost string }{
		{"openai", "m-1", "0.0025"},      // 1000 at 1, 150 at 10
		{"openai", "m-2-2026", "0.0046"}, // 500 at 2, 400 at 0.5, 100 at 4, 150 at 20
		{"openai", "m-2-mini", "0"},
		{"openai", "x", ""},
		{"openai", "m-2-mini-x", "0.0046"},
		{"anthropic", "m-1", ""},
	} {
		got := one[string](t, pool, `select coalesce(pgexec.model_cost($1, $2, 1000, 400, 100, 150)::text, '')`, tc.provider, tc.model)
		if got != tc.cost {
			t.Errorf("%s %s costs %q, want %q", tc.provider, tc.model, got, tc.cost)
		}
	}
	newAgent(t, pool, "a", `, "limits": {"max_cost_usd": 1}`)
	exec(t, pool, "delete from pgexec.model_prices")
	got := refused(t, pool, `insert into pgexec.runs (kind, input) values ('agent', '{"agent": "a", "prompt": "x"}')`)
	if !strings.Contains(got, "max_cost_usd is 1 for agent a, but its model m-1 has no price: insert it into pgexec.model_prices") {
		t.Error(got)
	}
}

func TestRunOverview_ACostThatIsNotKnownIsNoNumber(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	spent := func(u *pb.Usage) []byte {
		return encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Kind: "turn", Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Usage: u}}})
	}
	id := writeLog(t, pool, spent(&pb.Usage{InputTokens: 5, CostNanoUsd: 2e9}), spent(&pb.Usage{InputTokens: 5, Unpriced: 1}))
	if got := column[string](t, pool, "select coalesce(cost_usd::float8::text, 'unknown') from pgexec.nodes where run_id = $1 order by seq", id); strings.Join(got, " ") != "2 unknown" {
		t.Errorf("nodes cost %s", got)
	}
	const line = "select concat_ws(' ', tokens, input_tokens, output_tokens, coalesce(cost_usd::text, 'unknown'), unpriced) from pgexec.run_overview where run_id = $1"
	exec(t, pool, "update pgexec.runs set input_tokens = 10, output_tokens = 2, cost_usd = 2 where run_id = $1", id)
	if got := one[string](t, pool, line, id); got != "12 10 2 2 0" {
		t.Error(got)
	}
	exec(t, pool, "update pgexec.runs set unpriced = 1 where run_id = $1", id)
	if got := one[string](t, pool, line, id); got != "12 10 2 unknown 1" {
		t.Error(got)
	}
}
