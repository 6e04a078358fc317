package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
)

// Spec is a tool as a run has pinned it. As JSON it is part of the root's output.
// Name, Description and Parameters are what the model is told.
type Spec struct {
	definition.Tool
	// ServerTool is the name that an MCP server knows the tool by.
	ServerTool string `json:"server_tool,omitempty"`
	// ServerName is what the definition calls the server: all its tools share a session.
	ServerName string `json:"server_name,omitempty"`
	// Repeatable is what an MCP server says of a tool: that one call or several make no difference.
	Repeatable bool `json:"repeatable,omitempty"`
}

// The parameters of tools that have the same ones always.
var fixedParameters = map[string]string{
	definition.TypeAgent:  `{"type":"object","properties":{"prompt":{"type":"string","description":"What it is to do, with all that it has to know."}},"required":["prompt"],"additionalProperties":false}`,
	definition.TypeSignal: `{"type":"object","properties":{"question":{"type":"string","description":"What the person is asked."}},"required":["question"],"additionalProperties":false}`,
	definition.TypeSleep:  `{"type":"object","properties":{"seconds":{"type":"number","description":"How long to wait."}},"required":["seconds"],"additionalProperties":false}`,
}

// fixedDescriptions are of tools whose definition says nothing about them.
var fixedDescriptions = map[string]string{
	definition.TypeSignal: "Asks a person and returns the answer.",
	definition.TypeSleep:  "Waits.",
}

// ownKinds are no kinds of the embedding program: a tool that is one of them would get
// round what the tools of the other types are bound to.
var ownKinds = []string{
	"http", "sql", "graph", "graph_result", "agent", "turn", "compact", "answer", kindHTTP, kindSQL, kindMCP,
	pgexec.KindSleep, pgexec.KindSignal, pgexec.KindApproval, pgexec.KindRun,
}

// Pin returns the tools of a definition as a run is to keep them. It asks the
// MCP servers for theirs, so it takes as long as they do.
func Pin(ctx context.Context, env *Env, def *definition.Definition) ([]Spec, error) {
	var specs []Spec
	for _, t := range def.Tools {
		switch {
		case t.Type == definition.TypeMCP:
			more, err := env.pinServer(ctx, def, t)
			if err != nil {
				return nil, err
			}
			specs = append(specs, more...)
			continue
		case t.Type == definition.TypeKind && slices.Contains(ownKinds, t.Kind):
			return nil, badTool("tool %s: kind %q is one of pgexec's own; a tool of type kind is for kinds of your own program, or use another type", t.Name, t.Kind)
		case t.Type == definition.TypeSQL && env.SQLRole == "":
			return nil, noSQLRole(t.Name)
		}
		if p := fixedParameters[t.Type]; p != "" {
			t.Parameters = json.RawMessage(p)
		}
		if t.Description == "" {
			t.Description = fixedDescriptions[t.Type]
		}
		specs = append(specs, Spec{Tool: t})
	}
	return specs, checkNames(specs)
}

func badTool(format string, args ...any) error {
	return pgexec.Permanent(pgexec.WithCode(fmt.Errorf(format, args...), codeBadTool))
}

// checkNames refuses two tools of one name, of which one may be a server's.
func checkNames(specs []Spec) error {
	by := make(map[string]*Spec, len(specs))
	for i := range specs {
		s := &specs[i]
		if former := by[s.Name]; former != nil {
			return badTool("%s and %s are both called %s; leave one out by the MCP server's list of \"tools\", or give the other another name",
				former.origin(), s.origin(), s.Name)
		}
		by[s.Name] = s
	}
	return nil
}

// origin says what a tool is, to people.
func (s *Spec) origin() string {
	if s.ServerTool != "" {
		return fmt.Sprintf("tool %q of an MCP server", s.ServerTool)
	}
	return "tool " + s.Name
}

// pinServer pins the tools of an MCP server.
func (env *Env) pinServer(ctx context.Context, def *definition.Definition, t definition.Tool) ([]Spec, error) {
	server, hide, err := env.server(&Spec{Tool: t}, def.HTTPAllow)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx, t.Timeout)
	defer cancel()
	tools, err := env.MCP.Tools(ctx, server)
	if err != nil {
		return nil, mcpFault(err, hide)
	}
	allowed := t.Tools
	var specs []Spec
	for _, of := range tools {
		if allowed != nil && !slices.Contains(allowed, of.Name) {
			continue
		}
		if !ofObject(of.Schema) {
			return nil, badTool("tool %s: tool %q of the MCP server has a schema that is not one of an object, which no provider takes; leave it out by the list of \"tools\"", t.Name, of.Name)
		}
		specs = append(specs, newServerSpec(t, &of))
	}
	for _, name := range allowed {
		if !slices.ContainsFunc(tools, func(of mcp.Tool) bool { return of.Name == name }) {
			return nil, badTool("tool %s: the MCP server has no tool %q; it has %s", t.Name, name, names(tools))
		}
	}
	return specs, nil
}

// ofObject reports whether a JSON Schema can be that of arguments.
func ofObject(schema json.RawMessage) bool {
	var s struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(schema, &s) == nil && (s.Type == "" || s.Type == "object")
}

func names(tools []mcp.Tool) string {
	list := make([]string, len(tools))
	for i, t := range tools {
		list[i] = t.Name
	}
	return strings.Join(list, ", ")
}

func newServerSpec(t definition.Tool, of *mcp.Tool) Spec {
	s := Spec{Tool: t, ServerTool: of.Name, ServerName: t.Name}
	s.Name, s.Description, s.Parameters, s.Tools = serverToolName(t.Name, of.Name), of.Description, of.Schema, nil
	s.Repeatable = isTrue(of.ReadOnly) || isTrue(of.Idempotent)
	return s
}

func isTrue(b *bool) bool { return b != nil && *b }

// maxName is what providers allow a tool's name, in bytes.
const maxName = 64

// serverToolName is how a model calls a server's tool: with characters and a length that every provider takes.
func serverToolName(prefix, name string) string {
	full := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, prefix+"_"+name)
	if len(full) <= maxName {
		return full
	}
	sum := fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(full)))
	return full[:maxName-len(sum)] + sum
}

// LLM is what the model is told of the tools.
func LLM(specs []Spec) []llm.Tool {
	tools := make([]llm.Tool, len(specs))
	for i, s := range specs {
		tools[i] = llm.Tool{Name: s.Name, Description: s.Description, Schema: s.Parameters}
	}
	return tools
}
