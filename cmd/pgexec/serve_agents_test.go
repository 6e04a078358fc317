package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// mcpEnv makes the test program an MCP server.
const mcpEnv = "PGEXEC_TEST_AS_MCP"

// serveMCP answers on stdin and stdout until stdin ends.
func serveMCP() {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "whoami", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "I am " + os.Getenv("WHO")}}}, nil
		})
	_ = server.Run(context.Background(), &mcp.StdioTransport{}) // its end is the end of stdin
	os.Exit(0)
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An agent's tools get from the replica's configuration what no definition can give them.
func TestServe_AgentsHaveTheToolsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	model := pgexectest.NewModel(t, `
rules:
  - when: {turn: 0}
    reply:
      calls:
        - {name: here_whoami, args: {}}
        - {name: sum, args: {n: 40}}
  - when: {turn: 1}
    reply: {text: "done"}
`)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := writeConfig(t, fmt.Sprintf(`{"mcpServers": {"here": {"command": %q, "env": {%q: "1", "WHO": "the ${PGEXEC_TEST_WHO}"}}}}`, self, mcpEnv))
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := start(t, []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t), "PGEXEC_TEST_WHO=server"},
		"serve", "--http", "off", "--http-allow", "127.0.0.1", "--mcp-config", config, "--agent-sql-role", "pg_read_all_stats")
	p.line("replica is ready")
	define := `insert into pgexec.agents (name, definition) values ('a', jsonb_build_object(
		'provider', 'openai', 'base_url', $1::text, 'model', 'any', 'tools', '[
			{"type": "mcp", "name": "here", "server": "here"},
			{"type": "sql", "name": "sum", "statement": "select $1::int + 2 as sum, current_user as as_role", "args": ["n"], "parameters": {"type": "object", "properties": {"n": {}}}}
		]'::jsonb))`
	if _, err := pool.Exec(ctx, define, model.URL+"/v1"); err != nil {
		t.Fatal(err)
	}
	out := mustInvoke(t, "run", "start", "agent", "--input", `{"agent": "a", "prompt": "Who are you?"}`, "--wait", "--database-url", pgtest.URL(t))
	if !strings.Contains(out, "done") {
		t.Fatalf("the run: %s", out)
	}
	asked := model.Requests()
	last := strings.ReplaceAll(asked[len(asked)-1].Body, `\"`, `"`)
	for _, want := range []string{"I am the server", `[{"sum":42,"as_role":"pg_read_all_stats"}]`} {
		if !strings.Contains(last, want) {
			t.Errorf("the model does not see %s in %s", want, last)
		}
	}
}

// A role that no statement could have ends the replica before it takes a run.
func TestServe_ARoleThatCannotBeTakenOnIsNamed(t *testing.T) {
	t.Parallel()
	server, pool := strict(t)
	if _, err := pool.Exec(t.Context(), "create role tools"); err != nil {
		t.Fatal(err)
	}
	database := pool.Config().ConnConfig.Database
	for _, tc := range []struct{ url, role, want string }{
		{server.URL(database), "no one", `--agent-sql-role: role "no one" does not exist: create it, and GRANT "no one" TO "postgres"`},
		{server.URL(database), "none", "--agent-sql-role: role none: there can be no role of this name"},
		{as(t, server.TCPURL(database), "app", secret, ""), "tools", `--agent-sql-role: "app" may not take on role "tools": GRANT "tools" TO "app"`},
	} {
		p := start(t, []string{"PGEXEC_DATABASE_URL=" + tc.url}, "serve", "--http", "off", "--agent-sql-role", tc.role)
		if code := p.exit(30 * time.Second); code != exitFailure || !strings.Contains(p.text(), tc.want) {
			t.Errorf("exit code %d: %s, want %q", code, p.text(), tc.want)
		}
	}
}

func TestServe_BadMCPConfigIsNamed(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"mcpServers": {"x": {"url": "https://x"}}}`:                                  `unknown field "url"`,
		`{"mcpServers": {"x": {}}}`:                                                    `server "x" has no command; one at a URL belongs in the definition of the agent`,
		`{"mcpServers": {"x": {"command": "y", "env": {"A": "${PGEXEC_TEST_NONE}"}}}}`: `server "x": env A: ${PGEXEC_TEST_NONE} is not set in the environment`,
		`[]`: "cannot unmarshal array",
	} {
		path := writeConfig(t, config)
		if _, err := readMCPConfig(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
}

// The configuration in docs/agent-tools.md is one.
func TestDocs_MCPConfigIsRead(t *testing.T) {
	t.Setenv("GITHUB_TOKEN", "t0ken")
	for _, block := range doctest.Blocks(t, "../../docs/agent-tools.md", "json") {
		if !strings.Contains(block, "mcpServers") {
			continue
		}
		servers, err := readMCPConfig(writeConfig(t, block))
		if err != nil || !slices.Equal(servers["github"].Env, []string{"GITHUB_PERSONAL_ACCESS_TOKEN=t0ken"}) {
			t.Errorf("%+v, %v", servers, err)
		}
	}
}
