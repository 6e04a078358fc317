package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/tool"
	"github.com/pgexec/runtime/sql"
)

// rootOutput is what a run keeps of its beginning: neither a changed definition
// nor a changed tool list reaches a run that has started.
type rootOutput struct {
	Agent      string          `json:"agent"`
	Definition json.RawMessage `json:"definition"`
	Tools      []tool.Spec     `json:"tools"`
	// History is the conversation of the run that this one continues.
	History []saved `json:"history,omitempty"`
}

// handleAgent is the first node of a run.
func (a *Agents) handleAgent(ctx context.Context, n *pgexec.Node, input json.RawMessage) (*rootOutput, error) {
	if n.ID() != pgexec.RootID {
		return nil, pgexec.Permanent(errors.New(`an agent is a run of its own: use kind "run" with the input {"kind": "agent", "input": {…}}`))
	}
	in, err := definition.ParseInput(input)
	if err != nil {
		return nil, pgexec.Permanent(pgexec.WithCode(err, "bad_input"))
	}
	out := &rootOutput{Agent: in.Agent}
	raw, err := a.readDefinition(ctx, n.RunID(), in.Agent)
	if err != nil {
		return nil, err
	}
	def, err := definition.Parse(raw)
	if err != nil {
		return nil, pgexec.Permanent(pgexec.WithCode(fmt.Errorf("agent %q: %w", in.Agent, err), "bad_definition"))
	}
	// With the defaults of today: those of a later version are for new runs.
	if out.Definition, err = tool.EncodeJSON(def); err != nil {
		return nil, err
	}
	if err := checkPrompt(in); err != nil {
		return nil, pgexec.Permanent(pgexec.WithCode(err, "bad_input"))
	}
	if out.Tools, err = tool.Pin(ctx, a.env, def); err != nil {
		return nil, err
	}
	if in.Continue != "" {
		if out.History, err = a.history(ctx, n, def, in.Continue); err != nil {
			return nil, err
		}
	}
	n.Spawn(kindTurn, numberInput{1}, &pgexec.SpawnOpts{
		ID: turnID(1), OwnLimits: true, Retry: pgexec.RetryPolicy{MaxAttempts: def.MaxAttempts},
	})
	return out, nil
}

// checkPrompt refuses what would only fail in the first turn.
func checkPrompt(in *definition.Input) error {
	if in.Messages == nil && trimmed(in.Prompt) == "" {
		return errors.New("prompt: it is blank")
	}
	for i, m := range in.Messages {
		if isBlank(m.Content) {
			return fmt.Errorf("messages[%d].content: it is blank", i)
		}
	}
	return nil
}

func (a *Agents) readDefinition(ctx context.Context, id pgexec.RunID, name string) (json.RawMessage, error) {
	var raw json.RawMessage
	err := a.cfg.Pool.QueryRow(ctx, sql.AgentDefinition, id, name).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, pgexec.Permanent(pgexec.WithCode(fmt.Errorf("there is no agent %q in pgexec.agents", name), "unknown_agent"))
	}
	if err != nil {
		return nil, fmt.Errorf("read agent %q: %w", name, err)
	}
	return raw, nil
}
