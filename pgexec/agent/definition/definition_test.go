package definition

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// whole has every field that a definition can have.
const whole = `{
  "provider": "anthropic", "base_url": "https://api.example.org/v1", "api_key": {"env": "EXAMPLE_API_KEY"}, "model": "m-1",
  "system": "Be brief & <kind>.", "interactive": true, "parallel_tool_calls": false, "temperature": 0.5, "top_p": 0.9,
  "max_output_tokens": 1000, "effort": "high", "extra": {"seed": 1}, "headers": {"X-Team": "blue", "Authorization": {"file": "/run/secrets/a", "prefix": "Bearer "}},
  "limits": {"max_turns": 5, "max_tool_calls": 6, "max_tokens": 7, "max_cost_usd": 0.25, "max_wall": "1h30m"},
  "context": {"window": 1000, "compact_at": 0.5, "keep_turns": 2},
  "max_attempts": 3, "idle_timeout": "1500ms", "total_timeout": "90m1s1ms", "http_allow": ["example.org"],
  "tools": [
    {"type": "http", "name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {}, "day": {}}},
     "timeout": "1s", "max_attempts": 1, "approval": true, "at_most_once": "ask", "max_output": 256,
     "method": "POST", "url": "https://example.org/{city}?x=1", "headers": {"A": "b"}, "query": ["day"]},
    {"type": "sql", "name": "orders", "parameters": {"type": "object", "properties": {"id": {}}}, "statement": "select $1", "args": ["id"], "write": true},
    {"type": "mcp", "name": "files", "server": "files", "tools": ["read"]},
    {"type": "mcp", "name": "web", "url": "https://example.org/mcp", "headers": {"x-api-key": {"env": "WEB_TOKEN"}}},
    {"type": "agent", "name": "helper", "agent": "helper", "limits": {"max_tokens": 1, "max_cost_usd": 1.5, "max_wall": "1s"}},
    {"type": "signal", "name": "ask", "timeout": "24h"},
    {"type": "sleep", "name": "wait"},
    {"type": "kind", "name": "resize", "kind": "resize", "at_most_once": "fail"}
  ]
}`

func TestParse_ReadsEveryFieldAndPutsDefaultsIn(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if d.Headers["Authorization"].Secret.File != "/run/secrets/a" || d.Headers["X-Team"].Text != "blue" ||
		time.Duration(d.Limits.MaxWall) != 90*time.Minute || d.Limits.MaxCostUSD != 0.25 || !d.Tools[1].Write || d.Tools[3].URL == "" {
		t.Errorf("read %+v", d)
	}
	least, err := Parse([]byte(`{"provider": "openai", "model": "m", "tools": [{"type": "http", "name": "a", "url": "http://h"}, {"type": "signal", "name": "b"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Definition{
		Provider: "openai", Model: "m", Limits: Limits{MaxTurns: 50, MaxToolCalls: 200},
		Context: Context{Window: 128000, CompactAt: 0.8, KeepTurns: 4}, MaxAttempts: 8,
		IdleTimeout: Duration(time.Minute), TotalTimeout: Duration(10 * time.Minute),
		Tools: []Tool{
			{Type: "http", Name: "a", Timeout: Duration(30 * time.Second), MaxAttempts: 3, MaxOutput: 16384, Remote: Remote{URL: "http://h"}, HTTPTool: HTTPTool{Method: "GET"}},
			{Type: "signal", Name: "b", MaxOutput: 16384},
		},
	}
	if !reflect.DeepEqual(least, want) {
		t.Errorf("read\n%+v, want\n%+v", least, want)
	}
}

// What a run pins stays what it was, whatever the defaults of a later version are.
func TestParse_ReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	for _, text := range []string{whole, `{"provider": "openai", "model": "m", "http_allow": [], "tools": [{"type": "mcp", "name": "f", "server": "f", "tools": []}]}`} {
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		// Raw JSON has other blanks and escapes, and the same meaning.
		if first, second := mustMarshal(t, d), mustMarshal(t, again); first != second {
			t.Errorf("wrote\n%s, read\n%s", first, second)
		}
	}
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// with is a valid definition but for these fields.
func with(fields string) string { return `{"provider": "openai", "model": "m", ` + fields + `}` }

// tool is a valid definition but for this tool.
func tool(fields string) string { return with(`"tools": [{` + fields + `}]`) }

const secretWords = `an object {"env": "NAME"} or {"file": "/path"}`

// refused are definitions and what is wrong with each.
var refused = []struct{ definition, problem string }{
	{`[]`, `the definition is a list, must be an object`},
	{`null`, `the definition is null, must be an object`},
	{`{}`, `provider is missing`},
	{`{"provider": "openai"}`, `model is missing`},
	{`{"provider": "azure", "model": "m"}`, `provider is "azure", must be one of "openai", "anthropic"`},
	{`{"provider": 5, "model": "m"}`, `provider is 5, must be one of "openai", "anthropic"`},
	{`{"provider": "openai", "model": ""}`, `model is "", must be a text of 1 to 256 characters`},
	{with(`"system": null`), `system is null, must be a text`},
	{with(`"modle": "x", "zz": 1`), `modle is not known; the fields are api_key, base_url, context, effort, extra, headers, http_allow, idle_timeout, interactive, ` +
		`limits, max_attempts, max_output_tokens, model, parallel_tool_calls, provider, system, temperature, tools, top_p, total_timeout`},
	{with(`"base_url": "api.example.org"`), `base_url must be a URL, as https://host/path, without user and password`},
	{with(`"base_url": "https://user:pass@example.org"`), `base_url must be a URL, as https://host/path, without user and password`},
	{with(`"api_key": "sk-very-secret"`), `api_key is a text, must be ` + secretWords},
	{with(`"api_key": {}`), `api_key must have exactly one of env, file`},
	{with(`"api_key": {"env": "A", "file": "/b"}`), `api_key must have exactly one of env, file`},
	{with(`"api_key": {"env": "sk-very-secret"}`), `api_key.env must be the name of an environment variable`},
	{with(`"api_key": {"file": "secret"}`), `api_key.file must be the absolute path of a file`},
	{with(`"headers": {"X": 5}`), `headers.X is 5, must be a text or ` + secretWords},
	{with(`"headers": {"a b": "c"}`), `headers has "a b", must be the name of a header`},
	{with(`"headers": {"X": {"env": "A", "value": "b"}}`), `headers.X.value is not known; the fields are env, file, prefix`},
	{with(`"headers": {"authorization": "Bearer sk-very-secret"}`), `headers.authorization is a text, must be ` + secretWords + `: secrets are not stored`},
	{with(`"temperature": 2.5`), `temperature is 2.5, must be at most 2`},
	{with(`"temperature": "hot"`), `temperature is a text, must be a number`},
	{with(`"interactive": "yes"`), `interactive is a text, must be true or false`},
	{with(`"extra": []`), `extra is a list, must be an object`},
	{with(`"limits": {"max_turns": 0}`), `limits.max_turns is 0, must be at least 1`},
	{with(`"limits": {"max_turns": 1.5}`), `limits.max_turns is 1.5, must be a whole number`},
	{with(`"limits": {"max_cost_usd": 0}`), `limits.max_cost_usd is 0, must be above 0`},
	{with(`"limits": {"max_wall": "fast"}`), `limits.max_wall is "fast", must be a duration, as "30s" or "1h30m"`},
	{with(`"limits": {"max_wall": "0s"}`), `limits.max_wall is "0s", must be a duration, as "30s" or "1h30m"`},
	{with(`"limits": {"max_wall": 30}`), `limits.max_wall is 30, must be a duration, as "30s" or "1h30m"`},
	{with(`"context": {"compact_at": 1.1}`), `context.compact_at is 1.1, must be at most 1`},
	{with(`"http_allow": ["example.org", "https://example.org"]`), `http_allow[1] is "https://example.org", must be a host, as example.org, .example.org or example.org:8443`},
	{with(`"base_url": "https://example.org/v1?key=very-secret"`), `base_url has a query or a fragment: a key belongs in api_key or headers`},
	{with(`"extra": {"stream": false, "messages": []}`), `extra.messages cannot be set: it is what the conversation makes`},
	{with(`"extra": {"tools": {}}`), `extra.tools must be a list, of tools that the provider runs`},
	{with(`"headers": {"X": "a\nb"}`), `headers.X has a line break or another character that no header can have`},
	{with(`"headers": {"X": {"env": "A", "prefix": "a\u007f"}}`), `headers.X has a line break or another character that no header can have`},
	{tool(`"type": "sql", "name": "a", "statement": "select 1", "timeout": "10m1ms"`), `tools[0].timeout must be at most "10m"`},
	{with(`"tools": {}`), `tools is an object, must be a list`},
	{with(`"tools": [` + strings.Repeat(`{"type": "sleep", "name": "a"},`, 128) + `{"type": "sleep", "name": "a"}]`), `tools has 129 items, must have at most 128`},
	{with(`"tools": [5]`), `tools[0] is 5, must be an object`},
	{tool(`"name": "a"`), `tools[0].type is missing`},
	{tool(`"type": "ftp"`), `tools[0].type is "ftp", must be one of "http", "sql", "mcp", "agent", "signal", "sleep", "kind"`},
	{tool(`"type": 5`), `tools[0].type is 5, must be one of "http", "sql", "mcp", "agent", "signal", "sleep", "kind"`},
	{tool(`"type": "http", "name": "a"`), `tools[0].url is missing`},
	{tool(`"type": "http", "name": "a b", "url": "https://h"`), `tools[0].name is "a b", must be 1 to 64 letters, digits, _ and -`},
	{tool(`"type": "http", "name": "a", "url": "https://{host}/x"`), `tools[0].url must be a URL, as https://host/path, without user and password`},
	{tool(`"type": "http", "name": "a", "url": "https://h/{x}"`), `tools[0].url has {x}, which is not in parameters.properties`},
	{tool(`"type": "http", "name": "a", "url": "https://h", "query": ["q"], "parameters": {"type": "object", "properties": {}}`), `tools[0].query[0] is "q", which is not in parameters.properties`},
	{tool(`"type": "http", "name": "a", "url": "https://h", "headers": {"X-Api-Key": "sk-very-secret"}`), `tools[0].headers.X-Api-Key is a text, must be ` + secretWords + `: secrets are not stored`},
	{tool(`"type": "http", "name": "a", "url": "https://h", "method": "get"`), `tools[0].method is "get", must be one of "GET", "POST", "PUT", "PATCH", "DELETE"`},
	{tool(`"type": "http", "name": "a", "url": "https://h", "statement": "x"`), `tools[0].statement is not known; the fields are approval, at_most_once, description, headers, ` +
		`max_attempts, max_output, method, name, parameters, query, timeout, type, url`},
	{tool(`"type": "sql", "name": "a", "statement": ""`), `tools[0].statement is "", must be a text that is not empty`},
	{tool(`"type": "sql", "name": "a", "statement": "select $1", "args": ["x"]`), `tools[0].args[0] is "x", which is not in parameters.properties`},
	{tool(`"type": "sql", "name": "a", "statement": "select 1", "parameters": {"type": "array"}`), `tools[0].parameters.type is "array", must be "object"`},
	{tool(`"type": "sql", "name": "a", "statement": "select 1", "at_most_once": "maybe"`), `tools[0].at_most_once is "maybe", must be one of "fail", "ask"`},
	{tool(`"type": "mcp", "name": "a"`), `tools[0] must have exactly one of server, url`},
	{tool(`"type": "mcp", "name": "a", "server": "s", "url": "https://h"`), `tools[0] must have exactly one of server, url`},
	{tool(`"type": "mcp", "name": "a", "server": "s", "tools": [""]`), `tools[0].tools[0] is "", must be a text of 1 to 256 characters`},
	{tool(`"type": "agent", "name": "a", "agent": "b", "limits": {"max_turns": 1}`), `tools[0].limits.max_turns is not known; the fields are max_cost_usd, max_tokens, max_wall`},
	{tool(`"type": "kind", "name": "a", "kind": "b", "max_output": 1`), `tools[0].max_output is 1, must be at least 256`},
	{with(`"tools": [{"type": "sleep", "name": "a"}, {"type": "signal", "name": "a"}]`), `tools[1].name is "a", as that of tools[0]`},
}

func TestParse_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tc := range refused {
		_, err := Parse([]byte(tc.definition))
		var wrong *Error
		if !errors.As(err, &wrong) || err.Error() != tc.problem {
			t.Errorf("%.200s:\n%v, want\n%s", tc.definition, err, tc.problem)
		} else if !strings.HasPrefix(tc.problem, wrong.Field) {
			t.Errorf("%s: the field is %q", tc.problem, wrong.Field)
		}
	}
	for _, text := range []string{"", "{", `{"provider": "openai", "model": "m"} 5`} {
		if _, err := Parse([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "the definition is no JSON: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParse_ShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, tc := range refused {
		for _, secret := range []string{"very-secret", "user:pass"} {
			if _, err := Parse([]byte(tc.definition)); strings.Contains(err.Error(), secret) {
				t.Errorf("%v", err)
			}
		}
	}
}

// problem asks the database what is wrong.
func databaseProblem(t *testing.T, pool *pgxpool.Pool, function, document string) string {
	t.Helper()
	var problem *string
	if err := pool.QueryRow(t.Context(), "select pgexec."+function+"($1)", document).Scan(&problem); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	if problem == nil {
		return ""
	}
	return *problem
}

func TestParse_TheDatabaseSaysTheSame(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, tc := range refused {
		if got := databaseProblem(t, pool, "agent_problem", tc.definition); got != tc.problem {
			t.Errorf("%.200s:\n%s, want\n%s", tc.definition, got, tc.problem)
		}
	}
	for _, tc := range refusedInputs {
		if got := databaseProblem(t, pool, "agent_input_problem", tc.input); got != tc.problem {
			t.Errorf("%s:\n%s, want\n%s", tc.input, got, tc.problem)
		}
	}
	if got := databaseProblem(t, pool, "agent_problem", whole); got != "" {
		t.Error(got)
	}
	for _, text := range inputs {
		if got := databaseProblem(t, pool, "agent_input_problem", text); got != "" {
			t.Errorf("%s: %s", text, got)
		}
	}
}
