package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
	"github.com/pgexec/runtime/pgexec/kinds"
)

// server is a tool's MCP server, and what hides its secrets. Commands are the
// replica's own; a URL may only be of the hosts that the definition allows.
func (env *Env) server(spec *Spec, hosts []string) (mcp.Server, hider, error) {
	if spec.URL == "" {
		return mcp.Server{Name: spec.Server}, hider{}, nil
	}
	headers, hide, err := env.headers(spec)
	if err != nil {
		return mcp.Server{}, hide, err
	}
	return mcp.Server{Name: cmp.Or(spec.ServerName, spec.Name), URL: spec.URL, Headers: headers, HTTPClient: env.client(hosts)}, hide, nil
}

// mcpFault is how a call, or a list of tools, of an MCP server fails.
func mcpFault(err error, hide hider) error {
	var e *mcp.Error
	if !errors.As(err, &e) {
		return err
	}
	fault := pgexec.WithCode(errors.New(hide.text(e.Error())), codeMCP)
	switch {
	case errors.Is(err, mcp.ErrUnknownServer), errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist): // the command is not there
		return Lacking(fault, codeMCP)
	case e.Permanent, errors.Is(err, kinds.ErrAddressRefused):
		return pgexec.Permanent(fault)
	case e.RetryAfter > 0:
		return pgexec.RetryAfter(fault, e.RetryAfter)
	}
	return fault
}

// mcpOutput is the output of a call of an MCP tool.
type mcpOutput struct {
	// Content is the parts of the result, as the server sent them; an image is a blob.
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structured,omitempty"`
	IsError    bool              `json:"is_error,omitempty"`
	// Needs, in place of a result, is what the server has to know first.
	Needs *needs `json:"needs,omitempty"`
}

// needs is all that is to be kept of a call until it can go on.
type needs struct {
	Requests json.RawMessage `json:"requests,omitempty"`
	State    string          `json:"state,omitempty"`
	Args     json.RawMessage `json:"args"`
	// Call is the node that goes on with it.
	Call pgexec.NodeID `json:"call"`
}

// handleMCP does a call of a tool of an MCP server.
func (env *Env) handleMCP(ctx context.Context, n *pgexec.Node, in callInput) (json.RawMessage, error) {
	spec, hosts, err := pinnedFor(n, in.Tool)
	if err != nil {
		return nil, err
	}
	server, hide, err := env.server(spec, hosts)
	if err != nil {
		return nil, err
	}
	c := mcpCall{n: n, spec: spec, hide: hide, args: in.Args}
	var answer *mcp.Answer
	if in.After != "" {
		if c.args, answer, err = continued(n, in); err != nil {
			return nil, err
		}
	}
	res, err := env.MCP.Call(ctx, server, spec.ServerTool, c.args, answer)
	if err != nil {
		return nil, callFault(ctx, err, spec, hide)
	}
	raw, err := c.output(ctx, res)
	if err != nil && ctx.Err() == nil && !spec.Repeatable {
		err = pgexec.Permanent(fmt.Errorf("the result could not be kept: %w; the tool may have taken effect, so it is not called again", err))
	}
	return raw, err
}

// mcpCall is a call of an MCP tool that has brought a result.
type mcpCall struct {
	n    *pgexec.Node
	spec *Spec
	hide hider
	args json.RawMessage
}

// output is what to record of a result.
func (c *mcpCall) output(ctx context.Context, res *mcp.Result) (json.RawMessage, error) {
	out := mcpOutput{Structured: res.Structured, IsError: res.IsError, Content: []json.RawMessage{}}
	for _, p := range res.Parts {
		part, err := content(ctx, c.n, &p)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, part)
	}
	if res.Needs != nil {
		out.Needs = askFor(c.n, c.spec, res.Needs, c.args)
	}
	raw, err := EncodeJSON(out)
	if err != nil || out.Needs != nil {
		return c.hide.json(raw), err
	}
	return keep(ctx, c.n, c.spec, c.hide.json(raw))
}

// content is a part of a result as the node's output has it: what the server
// sent, but the bytes of images are blobs.
func content(ctx context.Context, n *pgexec.Node, p *mcp.Part) (json.RawMessage, error) {
	if p.Type != mcp.Image {
		return p.Raw, nil
	}
	ref, err := n.PutBlob(ctx, p.MediaType, bytes.NewReader(p.Data))
	if err != nil {
		return nil, err
	}
	return EncodeJSON(ref)
}

// callFault is how a call without a result fails. One that may have taken effect
// is not repeated, unless the server says that repeating it makes no difference.
func callFault(ctx context.Context, err error, spec *Spec, hide hider) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, pgexec.ErrDraining) || errors.Is(cause, pgexec.ErrOwnershipLost) || errors.Is(cause, pgexec.ErrCancelled) {
		return cause
	}
	fault := mcpFault(err, hide)
	var e *mcp.Error
	if errors.As(err, &e) && e.MayHaveRun && !spec.Repeatable {
		return pgexec.Permanent(fmt.Errorf("%w; the tool may have taken effect, so it is not called again", fault))
	}
	return fault
}

// askFor spawns the node in which a person answers the server, and the one that goes on with the call.
func askFor(n *pgexec.Node, spec *Spec, asked *mcp.InputNeeded, args json.RawMessage) *needs {
	call, answer := n.ID()+"-next", n.ID()+"-input"
	waits := n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: SignalAnswer, About: About{Tool: spec.Name, Requests: asked.Requests}},
		&pgexec.SpawnOpts{ID: answer})
	opts := spec.options(call)
	opts.After = []pgexec.NodeRef{n.Ref(), waits}
	n.Spawn(kindMCP, callInput{Tool: spec.Name, After: n.ID(), Answer: answer}, opts)
	return &needs{Requests: asked.Requests, State: asked.State, Args: args, Call: call}
}

// continued reads the call that a person's answer lets go on.
func continued(n *pgexec.Node, in callInput) (json.RawMessage, *mcp.Answer, error) {
	var former mcpOutput
	var payload json.RawMessage
	for id, dst := range map[pgexec.NodeID]any{in.After: &former, in.Answer: &payload} {
		node, ok := n.Ancestor(id)
		if !ok {
			return nil, nil, pgexec.Permanent(fmt.Errorf("there is no node %s", id))
		}
		if err := node.Output(dst); err != nil {
			return nil, nil, err
		}
	}
	if former.Needs == nil {
		return nil, nil, pgexec.Permanent(fmt.Errorf("node %s needs no input", in.After))
	}
	responses, err := former.Needs.responses(payload)
	return former.Needs.Args, &mcp.Answer{State: former.Needs.State, Responses: responses}, err
}

// responses makes of what a person sent the answers by the keys of the requests. To
// a single request the answer itself will do.
func (q *needs) responses(payload json.RawMessage) (json.RawMessage, error) {
	var requests, given map[string]json.RawMessage
	if len(q.Requests) == 0 {
		return nil, nil // the server wants to be called again
	}
	if err := json.Unmarshal(q.Requests, &requests); err != nil {
		return nil, pgexec.Permanent(err)
	}
	_ = json.Unmarshal(payload, &given) // what is no object has nothing by a key
	complete := true
	for key := range requests {
		complete = complete && given[key] != nil
	}
	switch {
	case complete:
		return payload, nil
	case len(requests) == 1 && given["action"] != nil:
		for key := range requests {
			return object(map[string]json.RawMessage{key: payload}), nil
		}
	}
	return nil, badArguments(`signal %q holds %.200s; want {"action": "accept", "content": {…}}, {"action": "decline"}, or an object of these by the keys of the requests`,
		SignalAnswer, payload)
}
