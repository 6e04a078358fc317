package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
	"github.com/pgexec/runtime/pgexec/kinds"
)

// Kinds of the nodes that do calls. Calls of sub-agents, questions and waits are
// nodes of the runtime's own kinds.
const (
	kindHTTP = "tool_http"
	kindSQL  = "tool_sql"
	kindMCP  = "tool_mcp"
)

// Codes of the errors of calls, beside those of the stock kinds.
const (
	codeBadArguments = "bad_arguments"
	codeBadTool      = "bad_tool"
	codeMCP          = "mcp"

	// CodeSecret is of a secret that the replica does not have, or does not give.
	CodeSecret = "secret"
)

// Env is what the tools of one replica may use.
type Env struct {
	Stock   *kinds.Stock
	MCP     *mcp.Pool
	Secrets *definition.Secrets
	// SQLRole is the role of sql tools. Without one they are refused.
	SQLRole string

	mu       sync.Mutex
	narrowed map[string]*http.Client
}

// Add adds the kinds of nodes that do calls.
func Add(k *pgexec.Kinds, env *Env) {
	pgexec.AddKind(k, kindHTTP, env.handleHTTP, nil)
	pgexec.AddKind(k, kindMCP, env.handleMCP, nil)
	// As many again as nodes of kind sql would leave no connection to the runtime.
	pgexec.AddKind(k, kindSQL, env.handleSQL, &pgexec.KindOpts{MaxParallel: max(1, env.Stock.SQLParallel()/2)})
}

// callInput is the input of a node that does a call.
type callInput struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
	// After names a call of an MCP tool that needed input, which Answer names the node of: this one goes on with it.
	After  pgexec.NodeID `json:"after,omitempty"`
	Answer pgexec.NodeID `json:"answer,omitempty"`
}

// pinned is what a call needs of the output of a run's root.
type pinned struct {
	Tools      []Spec `json:"tools"`
	Definition struct {
		HTTPAllow []string `json:"http_allow"`
	} `json:"definition"`
}

// pinnedFor returns the tool of a node as its run pinned it, and the hosts that the run narrows its tools to.
func pinnedFor(n *pgexec.Node, name string) (*Spec, []string, error) {
	root, ok := n.Ancestor(pgexec.RootID)
	if !ok {
		return nil, nil, pgexec.Permanent(fmt.Errorf("kind %s is for runs of agents only", n.Kind()))
	}
	var p pinned
	if err := root.Output(&p); err != nil {
		return nil, nil, err
	}
	spec := find(p.Tools, name)
	if spec == nil {
		return nil, nil, pgexec.Permanent(fmt.Errorf("the run has no tool %q", name))
	}
	return spec, p.Definition.HTTPAllow, nil
}

func find(specs []Spec, name string) *Spec {
	i := slices.IndexFunc(specs, func(s Spec) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &specs[i]
}

// headers resolves a tool's headers, and what hides their secrets.
func (env *Env) headers(spec *Spec) (map[string]string, hider, error) {
	headers, err := env.Secrets.Headers(spec.Headers)
	if err != nil {
		return nil, hider{}, Lacking(fmt.Errorf("tool %s: %w", spec.Name, err), CodeSecret)
	}
	return headers, newHider(spec, headers), nil
}

// lackingWait is how long a run waits for a replica that has what one lacked. It is
// longer than a run lingers, so that any replica may take the next attempt.
const lackingWait = 5 * time.Second

// Lacking marks the error of a node whose replica lacks what another one may have: a
// secret, a command, a role. The node is tried again after a while, on whichever
// replica takes the run then, as often as its attempts allow. The error names this one.
func Lacking(err error, code string) error {
	if err == nil {
		return nil
	}
	host, hostErr := os.Hostname()
	if hostErr != nil {
		host = "unknown"
	}
	return pgexec.RetryAfter(pgexec.WithCode(fmt.Errorf("%w [replica of process %d on host %s]", err, os.Getpid(), host), code), lackingWait)
}

func badArguments(format string, args ...any) error {
	return pgexec.Permanent(pgexec.WithCode(fmt.Errorf(format, args...), codeBadArguments))
}

// arguments are those of a call, by name.
func arguments(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(raw, &args); err != nil || args == nil {
		return nil, badArguments("the arguments are %.200s, must be a JSON object", raw)
	}
	return args, nil
}

// seconds writes a duration as an input of a stock kind has it.
func seconds(d definition.Duration) string { return time.Duration(d).String() }

// bounded bounds what is not a node's attempt.
func bounded(ctx context.Context, d definition.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(d))
}
