package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Definition is an agent, with defaults put in. [Parse] makes one; encoded as
// JSON it is one again, and the same. Fields that are left to the provider, or
// are no limits, are zero or nil.
type Definition struct {
	Provider          string            `json:"provider"`
	BaseURL           string            `json:"base_url,omitempty"`
	APIKey            *Secret           `json:"api_key,omitempty"`
	Model             string            `json:"model"`
	System            string            `json:"system,omitempty"`
	Interactive       bool              `json:"interactive,omitempty"`
	Tools             []Tool            `json:"tools,omitempty"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls,omitempty"`
	Temperature       *float64          `json:"temperature,omitempty"`
	TopP              *float64          `json:"top_p,omitempty"`
	MaxOutputTokens   int64             `json:"max_output_tokens,omitempty"`
	Effort            string            `json:"effort,omitempty"`
	Extra             json.RawMessage   `json:"extra,omitempty"`
	Headers           map[string]Header `json:"headers,omitempty"`
	Limits            Limits            `json:"limits"`
	Context           Context           `json:"context"`
	MaxAttempts       int               `json:"max_attempts"`
	IdleTimeout       Duration          `json:"idle_timeout"`
	TotalTimeout      Duration          `json:"total_timeout"`
	// HTTPAllow nil allows what the replica does; empty, nothing.
	HTTPAllow []string `json:"http_allow,omitzero"`
}

// Limits are those of a run of the agent. What counts is in the run's row in
// pgexec.runs, into which these are written when the run is inserted.
type Limits struct {
	MaxTurns     int64    `json:"max_turns"`
	MaxToolCalls int64    `json:"max_tool_calls"`
	MaxTokens    int64    `json:"max_tokens,omitempty"`
	MaxCostUSD   float64  `json:"max_cost_usd,omitempty"`
	MaxWall      Duration `json:"max_wall,omitempty"`
}

// Context says when a conversation is summarised: once it fills the part
// CompactAt of a window of so many tokens. The last KeepTurns turns stay as they are.
type Context struct {
	Window    int64   `json:"window"`
	CompactAt float64 `json:"compact_at"`
	KeepTurns int     `json:"keep_turns"`
}

// Types of tools.
const (
	TypeHTTP   = "http"
	TypeSQL    = "sql"
	TypeMCP    = "mcp"
	TypeAgent  = "agent"
	TypeSignal = "signal"
	TypeSleep  = "sleep"
	TypeKind   = "kind"
)

// Tool is one entry of the list of tools. Which fields it may have depends on its type.
type Tool struct {
	Type        string `json:"type"`
	Name        string `json:"name"` // of an MCP server's tools the first part
	Description string `json:"description,omitempty"`
	// Parameters is the JSON Schema of the arguments; nil for none.
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Timeout     Duration        `json:"timeout,omitempty"` // 0 of a question: it waits for ever
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Approval    bool            `json:"approval,omitempty"`
	AtMostOnce  string          `json:"at_most_once,omitempty"` // "fail", "ask" or ""
	MaxOutput   int             `json:"max_output,omitempty"`   // bytes that the model sees

	HTTPTool
	SQLTool
	MCPTool
	// Remote is of http and mcp.
	Remote

	Agent  string     `json:"agent,omitempty"` // the sub-agent's name
	Limits *SubLimits `json:"limits,omitempty"`

	Kind string `json:"kind,omitempty"`
}

// Remote is where a tool is, if it is reached by HTTP.
type Remote struct {
	URL     string            `json:"url,omitempty"`
	Headers map[string]Header `json:"headers,omitempty"`
}

// HTTPTool is what only tools of type http have.
type HTTPTool struct {
	Method string   `json:"method,omitempty"`
	Query  []string `json:"query,omitempty"` // arguments that go to the query
}

// SQLTool is what only tools of type sql have.
type SQLTool struct {
	Statement string   `json:"statement,omitempty"`
	Args      []string `json:"args,omitempty"` // arguments for $1, $2 …
	Write     bool     `json:"write,omitempty"`
}

// MCPTool is what only tools of type mcp have.
type MCPTool struct {
	Server string `json:"server,omitempty"` // of the replica's configuration; or there is a URL
	// Tools nil allows all of the server's tools; empty, none.
	Tools []string `json:"tools,omitzero"`
}

// SubLimits are those of one call of a sub-agent.
type SubLimits struct {
	MaxTokens  int64    `json:"max_tokens,omitempty"`
	MaxCostUSD float64  `json:"max_cost_usd,omitempty"`
	MaxWall    Duration `json:"max_wall,omitempty"`
}

// Duration is a time.Duration that is written as "30s" in JSON.
type Duration time.Duration

// UnmarshalJSON reads a text such as "1h30m".
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	*d = Duration(v)
	return err
}

// String writes a duration without fractions, as "1m30s500ms".
func (d Duration) String() string {
	var b strings.Builder
	left := time.Duration(d)
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := left / unit.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
		}
		left %= unit.length
	}
	return b.String()
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// Parse reads and checks what is in pgexec.agents.definition. An [*Error] names
// the first field that is wrong, and shows no secret.
func Parse(raw []byte) (*Definition, error) {
	v, err := parse(readDefinitionSchema(), raw)
	if err != nil {
		return nil, err
	}
	d := new(Definition)
	if err := convert(v, d); err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

// convert makes a struct of what was read and checked.
func convert(v, dst any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	return dec.Decode(dst)
}
