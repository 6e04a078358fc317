package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
	"github.com/pgexec/runtime/pgexec/kinds"
)

// agentFlags say what agents may use on a replica.
type agentFlags struct {
	mcpConfig  string
	secretEnv  []string
	secretsDir string
	sqlRole    string
}

func (f *agentFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.mcpConfig, "mcp-config", "",
		"a JSON file with the MCP servers that agents may name:\n{\"mcpServers\": {NAME: {\"command\", \"args\", \"env\"}}}\n(default $PGEXEC_MCP_CONFIG, else none)")
	flags.StringSliceVar(&f.secretEnv, "agent-env", nil,
		"environment variables that agents may name as secrets, beside those\nthat end in _API_KEY or _TOKEN")
	flags.StringVar(&f.secretsDir, "agent-secrets", "/run/secrets", "the directory with the files that agents may name as secrets")
	flags.StringVar(&f.sqlRole, "agent-sql-role", "",
		"the role of the statements of agents' sql tools\n(default $PGEXEC_AGENT_SQL_ROLE; without one they are refused)")
}

// addAgents adds the kinds of agents to a replica's.
func (f *agentFlags) addAgents(k *pgexec.Kinds, stock *kinds.Stock, pool *pgxpool.Pool, log *slog.Logger) (*agent.Agents, error) {
	servers, err := readMCPConfig(cmp.Or(f.mcpConfig, os.Getenv("PGEXEC_MCP_CONFIG")))
	if err != nil {
		return nil, usageErrorf("--mcp-config: %w", err)
	}
	return agent.Add(k, stock, &agent.Config{
		Pool:       pool,
		MCP:        servers,
		SecretEnv:  f.secretEnv,
		SecretsDir: f.secretsDir,
		SQLRole:    cmp.Or(f.sqlRole, os.Getenv("PGEXEC_AGENT_SQL_ROLE")),
		Version:    readVersion().Version,
		Logger:     log,
	})
}

// mcpServer is one server in a configuration file, in the form that other programs have too.
type mcpServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

// readMCPConfig reads the commands of MCP servers; none without a file. ${NAME} in
// a value of env is that variable of this process.
func readMCPConfig(path string) (map[string]mcp.Server, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Servers map[string]mcpServer `json:"mcpServers"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	servers := make(map[string]mcp.Server, len(file.Servers))
	for name, s := range file.Servers {
		if s.Command == "" {
			return nil, fmt.Errorf("%s: server %q has no command; one at a URL belongs in the definition of the agent", path, name)
		}
		server := mcp.Server{Name: name, Command: append([]string{s.Command}, s.Args...)}
		for _, key := range slices.Sorted(maps.Keys(s.Env)) {
			value, err := expand(s.Env[key])
			if err != nil {
				return nil, fmt.Errorf("%s: server %q: env %s: %w", path, name, key, err)
			}
			server.Env = append(server.Env, key+"="+value)
		}
		servers[name] = server
	}
	return servers, nil
}

// variable stands for one of the environment.
var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// expand puts in variables of the environment. One that is not set is an error: without
// it the server would start, and fail where nobody sees why.
func expand(text string) (string, error) {
	var missing error
	text = variable.ReplaceAllStringFunc(text, func(m string) string {
		value, ok := os.LookupEnv(variable.FindStringSubmatch(m)[1])
		if !ok {
			missing = fmt.Errorf("%s is not set in the environment", m)
		}
		return value
	})
	return text, missing
}
