package tool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pgexec/runtime/pgexec"
)

// sqlInput is what kind sql is given for a call.
type sqlInput struct {
	SQL     string            `json:"sql"`
	Params  []json.RawMessage `json:"params"`
	Write   bool              `json:"write"`
	Timeout string            `json:"timeout"`
}

// handleSQL does a call of a tool of type sql: the statement is the definition's,
// and arguments are nothing but its parameters.
func (env *Env) handleSQL(ctx context.Context, n *pgexec.Node, in callInput) (json.RawMessage, error) {
	spec, _, err := pinnedFor(n, in.Tool)
	if err != nil {
		return nil, err
	}
	if env.SQLRole == "" {
		return nil, noSQLRole(spec.Name)
	}
	args, err := arguments(in.Args)
	if err != nil {
		return nil, err
	}
	input := sqlInput{SQL: spec.Statement, Params: make([]json.RawMessage, len(spec.Args)), Write: spec.Write, Timeout: seconds(spec.Timeout)}
	for i, name := range spec.Args {
		if input.Params[i] = args[name]; input.Params[i] == nil {
			input.Params[i] = json.RawMessage("null")
		}
	}
	raw, err := EncodeJSON(input)
	if err != nil {
		return nil, err
	}
	out, err := env.Stock.SQL(ctx, n, raw, env.SQLRole)
	if err != nil {
		return nil, err
	}
	return keep(ctx, n, spec, out)
}

func noSQLRole(name string) error {
	return Lacking(fmt.Errorf("tool %s: this replica runs no statements of agents: it has no role for them (pgexec serve --agent-sql-role)", name), codeBadTool)
}
