package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tool is a tool as its server describes it.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments, in canonical form: without white
	// space and with sorted keys, so that an unchanged tool has unchanged bytes.
	Schema json.RawMessage
	// ReadOnly, Destructive and Idempotent are the server's hints, nil if it gives
	// none. A server that is not trusted may lie.
	ReadOnly, Destructive, Idempotent *bool
}

// maxToolPages bounds a list of tools, which a server could make endless.
const maxToolPages = 200

// Tools returns all tools of a server, sorted by name; of two of one name the
// first. A list is to be fetched once per run and kept: a server may change it at
// any time. Errors are *[Error].
func (p *Pool) Tools(ctx context.Context, server Server) ([]Tool, error) {
	server, err := p.resolve(server)
	if err != nil {
		return nil, &Error{Server: server.Name, Permanent: true, Err: err}
	}
	ctx, done := p.bound(ctx)
	defer done()
	tools, e := p.listOnce(ctx, server)
	if e != nil && e.lost && ctx.Err() == nil {
		tools, e = p.listOnce(ctx, server)
	}
	if e != nil {
		e.MayHaveRun = false
		return nil, e
	}
	return tools, nil
}

func (p *Pool) listOnce(ctx context.Context, server Server) ([]Tool, *Error) {
	s, err := p.acquire(ctx, server)
	if err != nil {
		return nil, err
	}
	tools, err := s.tools(ctx)
	p.release(s, err == nil || err.keepsSession())
	return tools, err
}

// tools reads all pages.
func (s *session) tools(ctx context.Context) ([]Tool, *Error) {
	var tools []Tool
	params := &sdk.ListToolsParams{}
	for range maxToolPages {
		inner, t := newTrip(ctx)
		page, err := s.cs.ListTools(inner, params)
		t.end()
		if err != nil {
			t.abort()
			if cause := context.Cause(ctx); cause != nil && t.fault == nil {
				return nil, &Error{Server: s.server.Name, Err: cause}
			}
			return nil, s.failure(t, err)
		}
		for _, tool := range page.Tools {
			tools = append(tools, newTool(tool))
		}
		if page.NextCursor == "" {
			return sorted(tools), nil
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, &Error{Server: s.server.Name, Permanent: true, Err: fmt.Errorf("the list of tools has no end after %d pages", maxToolPages)}
}

func newTool(t *sdk.Tool) Tool {
	tool := Tool{Name: t.Name, Description: t.Description, Schema: canonical(t.InputSchema)}
	if a := t.Annotations; a != nil {
		tool.ReadOnly, tool.Destructive, tool.Idempotent = &a.ReadOnlyHint, a.DestructiveHint, &a.IdempotentHint
	}
	return tool
}

// canonical writes what was read from JSON. A tool without schema takes any object.
func canonical(schema any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if schema == nil || enc.Encode(schema) != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return bytes.TrimSpace(b.Bytes())
}

func sorted(tools []Tool) []Tool {
	slices.SortStableFunc(tools, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(tools, func(a, b Tool) bool { return a.Name == b.Name })
}
