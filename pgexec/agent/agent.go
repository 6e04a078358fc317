package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
	"github.com/pgexec/runtime/pgexec/agent/tool"
	"github.com/pgexec/runtime/pgexec/kinds"
	"github.com/pgexec/runtime/sql"
)

// Config says what agents may use on this replica.
type Config struct {
	// Pool is where definitions, limits and prices are read. Required.
	Pool *pgxpool.Pool
	// MCP are the servers that definitions may name: commands that this replica runs.
	MCP map[string]mcp.Server
	// SecretEnv are environment variables that definitions may name beside those that end in _API_KEY or _TOKEN.
	SecretEnv []string
	// SecretsDir has the files that definitions may name. Defaults to /run/secrets.
	SecretsDir string
	// SQLRole is the role of the statements of sql tools. Without one they are refused.
	SQLRole string
	// Version is what MCP servers are told of this program. Defaults to "dev".
	Version string
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Agents is what the agents of one process share.
type Agents struct {
	cfg     Config
	secrets definition.Secrets
	http    *http.Client
	env     *tool.Env
	mcp     *mcp.Pool
	results *results
}

// Add adds the kinds of agents and of their tools. Close the result after the
// runtime has ended, and before stock is closed.
func Add(k *pgexec.Kinds, stock *kinds.Stock, cfg *Config) (*Agents, error) {
	if k == nil || stock == nil || cfg == nil || cfg.Pool == nil {
		return nil, errors.New("add agents: kinds, the stock kinds and a pool are needed")
	}
	a := &Agents{
		cfg:     *cfg,
		secrets: definition.Secrets{Env: cfg.SecretEnv, Dir: cfg.SecretsDir},
		http:    stock.Client(),
		results: newResults(),
	}
	if a.cfg.Logger == nil {
		a.cfg.Logger = slog.Default()
	}
	a.mcp = mcp.NewPool(mcp.Config{Stdio: cfg.MCP, HTTPClient: a.http, Logger: a.cfg.Logger, Version: cfg.Version})
	a.env = &tool.Env{Stock: stock, MCP: a.mcp, Secrets: &a.secrets, SQLRole: cfg.SQLRole}
	tool.Add(k, a.env)
	pgexec.AddKind(k, kindAgent, a.handleAgent, nil)
	pgexec.AddKind(k, kindTurn, a.handleTurn, nil)
	pgexec.AddKind(k, kindCompact, a.handleCompact, nil)
	pgexec.AddKind(k, kindAnswer, a.handleAnswer, nil)
	return a, nil
}

// Check looks whether the database has what the configuration names: the role of
// sql tools. An error says what is wrong with it, or that nothing could be asked.
func (a *Agents) Check(ctx context.Context) error {
	if a.cfg.SQLRole == "" {
		return nil
	}
	return a.env.Stock.CheckRole(ctx, a.cfg.SQLRole)
}

// Close ends the sessions with MCP servers.
func (a *Agents) Close() { a.mcp.Close() }

// client asks the model of a definition. Its key is read anew each time, and kept nowhere.
func (a *Agents) client(def *definition.Definition) (*llm.Client, error) {
	cfg := llm.Config{
		Provider: llm.Provider(def.Provider), BaseURL: def.BaseURL, Model: def.Model, HTTPClient: a.http,
		IdleTimeout: time.Duration(def.IdleTimeout), TotalTimeout: time.Duration(def.TotalTimeout),
	}
	var err error
	if def.APIKey != nil {
		if cfg.APIKey, err = a.secrets.Resolve(def.APIKey); err != nil {
			return nil, tool.Lacking(fmt.Errorf("api_key: %w", err), tool.CodeSecret)
		}
	}
	if cfg.Headers, err = a.secrets.Headers(def.Headers); err != nil {
		return nil, tool.Lacking(err, tool.CodeSecret)
	}
	cfg.Secrets = definition.SecretsIn(def.Headers, cfg.Headers)
	client, err := llm.New(cfg)
	return client, pgexec.Permanent(pgexec.WithCode(err, "bad_definition"))
}

// baseRequest is what all requests of a definition have in common.
func (s *scene) baseRequest() *llm.Request {
	d := s.def
	r := &llm.Request{
		MaxTokens: d.MaxOutputTokens, Temperature: d.Temperature, TopP: d.TopP, Effort: d.Effort, Extra: d.Extra,
		CacheBreakpoints: true,
	}
	if d.BaseURL == "" { // other servers may not know it
		r.CacheKey = s.n.RunID().String()
	}
	return r
}

// ledger is what the run's row limits, and what a use of the model costs.
type ledger struct {
	MaxTurns, MaxToolCalls int // 0 for no limit
	SoftLimit              float64
	// seconds are since the run began, of those that it has to its deadline; nil without one.
	seconds, deadline *float64
	costUSD           *string // nil if the model has no price
	costNano          *int64
}

func (a *Agents) readLedger(ctx context.Context, id pgexec.RunID, def *definition.Definition, u *llm.Usage) (*ledger, error) {
	l := new(ledger)
	err := a.cfg.Pool.QueryRow(ctx, sql.AgentTurn, id, def.Provider, def.Model, u.Input, u.CachedRead, u.CacheWrite, u.Output).Scan(
		&l.costUSD, &l.costNano, &l.MaxTurns, &l.MaxToolCalls, &l.SoftLimit, &l.seconds, &l.deadline)
	if err != nil {
		return nil, fmt.Errorf("read limits and price: %w", err)
	}
	return l, nil
}

// patience bounds how long a turn that the model has answered waits for the database:
// to ask again would be to pay again.
const patience = time.Minute

// persist reads until the database answers, for as long as there is patience.
func (a *Agents) persist(ctx context.Context, read func() (*ledger, error)) (*ledger, error) {
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		l, err := read()
		if err == nil || ctx.Err() != nil || time.Since(began) > patience {
			return l, err
		}
		a.cfg.Logger.Warn("the database does not answer, trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// count records what asking the model cost, in the node's usage and for its output.
func (a *Agents) count(ctx context.Context, n *pgexec.Node, def *definition.Definition, t *llm.Turn) (spent, *ledger, error) {
	s := spent{Model: t.Model, RequestID: t.RequestID, Usage: &t.Usage, CostUSD: json.RawMessage("null")}
	l, err := a.persist(ctx, func() (*ledger, error) { return a.readLedger(ctx, n.RunID(), def, &t.Usage) })
	if err != nil {
		return s, nil, err
	}
	used := pgexec.Usage{
		InputTokens: t.Usage.Input, OutputTokens: t.Usage.Output, Unpriced: 1,
		CachedTokens: t.Usage.CachedRead, ReasoningTokens: t.Usage.Reasoning,
	}
	if l.costUSD != nil {
		used.Unpriced = 0
		s.CostUSD, used.CostNanoUSD = json.RawMessage(strconv.Quote(*l.costUSD)), *l.costNano
	}
	n.AddUsage(used)
	return s, l, nil
}
