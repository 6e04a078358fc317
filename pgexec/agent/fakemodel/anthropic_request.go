package fakemodel

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens *int64             `json:"max_tokens"`
	System    json.RawMessage    `json:"system"`
	Messages  []anthropicMessage `json:"messages"`
	Tools     []struct {
		Type         string          `json:"type"`
		Name         string          `json:"name"`
		InputSchema  json.RawMessage `json:"input_schema"`
		CacheControl json.RawMessage `json:"cache_control"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
	Thinking   *struct {
		Type         string `json:"type"`
		BudgetTokens int64  `json:"budget_tokens"`
	} `json:"thinking"`
	Stream bool `json:"stream"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`

	blocks []anthropicBlock
}

type anthropicBlock struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      json.RawMessage `json:"content"`
	Thinking     *string         `json:"thinking"`
	Signature    *string         `json:"signature"`
	Data         *string         `json:"data"`
	CacheControl json.RawMessage `json:"cache_control"`
	Source       *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
}

const maxBreakpoints = 4

// parseAnthropic reads a request of messages, and refuses what the real API refuses (C46).
func parseAnthropic(header http.Header, body []byte) (*conversation, *problem) {
	var req anthropicRequest
	c := newConversation(apiAnthropic, body)
	if err := json.Unmarshal(body, &req); err != nil {
		return c, invalid("The request body is not valid JSON: %v", err)
	}
	c.model, c.stream = req.Model, req.Stream
	if header.Get("Anthropic-Version") == "" {
		return c, invalid("anthropic-version: header is required")
	}
	if p := req.checkSettings(); p != nil {
		return c, p
	}
	if p := req.readTools(c); p != nil {
		return c, p
	}
	system, p := blocksOf(req.System, "system")
	if p != nil {
		return c, p
	}
	c.system = textOf(system)
	for i := range req.Messages {
		if p := req.Messages[i].read(c, i, i == len(req.Messages)-1); p != nil {
			return c, p
		}
	}
	if p := req.checkResults(); p != nil {
		return c, p
	}
	return c, req.checkBreakpoints(system)
}

func (r *anthropicRequest) checkSettings() *problem {
	switch t := r.Thinking; {
	case r.Model == "":
		return invalid("model: Field required")
	case r.MaxTokens == nil:
		return invalid("max_tokens: Field required")
	case *r.MaxTokens < 1:
		return invalid("max_tokens: Input should be greater than or equal to 1")
	case len(r.Messages) == 0:
		return invalid("messages: at least one message is required")
	case r.Messages[0].Role != "user":
		return invalid("messages: first message must use the \"user\" role")
	case len(r.Tools) == 0 && isSet(r.ToolChoice):
		return invalid("tool_choice: may only be specified while providing `tools`")
	case t != nil && t.Type == "enabled" && t.BudgetTokens < 1024:
		return invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case t != nil && t.Type == "enabled" && t.BudgetTokens >= *r.MaxTokens:
		return invalid("`max_tokens` must be greater than `thinking.budget_tokens`")
	}
	return nil
}

func (r *anthropicRequest) readTools(c *conversation) *problem {
	for i, tool := range r.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		switch {
		case slices.Contains(c.tools, tool.Name):
			return invalid("tools: Tool names must be unique.")
		case tool.Type != "" && tool.Type != "custom": // a tool of the provider's own has no schema
		case !toolName.MatchString(tool.Name):
			return invalid("tools.%d.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", i)
		case !isSet(tool.InputSchema):
			return invalid("tools.%d.custom.input_schema: Field required", i)
		case json.Unmarshal(tool.InputSchema, &schema) != nil || schema.Type != "object":
			return invalid("tools.%d.custom.input_schema.type: Input should be 'object'", i)
		}
		c.tools = append(c.tools, tool.Name)
	}
	return nil
}

// blocksOf reads content, which is a text or a list of blocks.
func blocksOf(content json.RawMessage, at string) ([]anthropicBlock, *problem) {
	if !isSet(content) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil, nil
		}
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, invalid("%s: Input should be a valid string or a list of content blocks: %v", at, err)
	}
	return blocks, nil
}

func textOf(blocks []anthropicBlock) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" && b.Text != nil {
			texts = append(texts, *b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// read checks one message by itself and adds it to the conversation.
func (m *anthropicMessage) read(c *conversation, i int, last bool) *problem {
	if m.Role != "user" && m.Role != "assistant" {
		return invalid("messages.%d.role: Input should be 'user' or 'assistant', not %q", i, m.Role)
	}
	var p *problem
	if m.blocks, p = blocksOf(m.Content, at(i, "content")); p != nil {
		return p
	}
	if len(m.blocks) == 0 && (m.Role == "user" || !last) {
		return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
	}
	if m.Role == "assistant" {
		c.addAssistant()
	}
	for j, b := range m.blocks {
		if p := b.check(m.Role, at(i, "content", j)); p != nil {
			return p
		}
		switch b.Type {
		case "tool_use":
			c.calls[b.ID] = b.Name
		case "tool_result":
			given, p := blocksOf(b.Content, at(i, "content", j, "tool_result.content"))
			if p != nil {
				return p
			}
			c.addResult(b.ToolUseID, textOf(given))
		}
	}
	if m.Role == "user" {
		c.addUser(textOf(m.blocks))
	}
	return nil
}

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// check refuses a block that cannot be in a message of that role.
func (b *anthropicBlock) check(role, at string) *problem {
	ofOther := map[string]string{"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user", "image": "user"}
	if want := ofOther[b.Type]; want != "" && want != role {
		return invalid("%s: `%s` blocks can only be in `%s` messages", at, b.Type, want)
	}
	switch b.Type {
	case "":
		return invalid("%s.type: Field required", at)
	case "text":
		if b.Text == nil || *b.Text == "" {
			return invalid("%s: text content blocks must be non-empty", at)
		}
	case "tool_use":
		return b.checkToolUse(at)
	case "tool_result":
		if b.ToolUseID == "" {
			return invalid("%s.tool_result.tool_use_id: Field required", at)
		}
		return b.checkResultContent(at + ".tool_result.content")
	case "thinking":
		return b.checkThinking(at)
	case "redacted_thinking":
		if b.Data == nil || *b.Data == "" {
			return invalid("%s.redacted_thinking.data: Field required", at)
		}
	case "image":
		return b.checkImage(at)
	}
	return nil
}

func (b *anthropicBlock) checkToolUse(at string) *problem {
	switch {
	case !toolUseID.MatchString(b.ID):
		return invalid("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
	case !toolName.MatchString(b.Name):
		return invalid("%s.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'", at)
	case !isSet(b.Input) || b.Input[0] != '{':
		return invalid("%s.tool_use.input: Input should be a valid dictionary", at)
	}
	return nil
}

// checkResultContent allows texts and images in a result.
func (b *anthropicBlock) checkResultContent(at string) *problem {
	given, p := blocksOf(b.Content, at)
	if p != nil {
		return p
	}
	for _, g := range given {
		if slices.Contains([]string{"tool_use", "tool_result", "thinking", "redacted_thinking"}, g.Type) {
			return invalid("%s: `%s` blocks cannot be in a `tool_result`", at, g.Type)
		}
		if p := g.check("user", at); p != nil {
			return p
		}
	}
	return nil
}

// checkThinking holds thinking to what this server gave, byte for byte (C47).
func (b *anthropicBlock) checkThinking(at string) *problem {
	switch {
	case b.Thinking == nil:
		return invalid("%s.thinking.thinking: Field required", at)
	case b.Signature == nil:
		return invalid("%s.thinking.signature: Field required", at)
	case *b.Signature != sign(*b.Thinking):
		return invalid("%s: Invalid `signature` in `thinking` block", at)
	}
	return nil
}

func (b *anthropicBlock) checkImage(at string) *problem {
	s := b.Source
	switch {
	case s == nil:
		return invalid("%s.image.source: Field required", at)
	case s.Type == "base64" && !slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, s.MediaType):
		return invalid("%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", at)
	case s.Type == "base64" && s.Data == "":
		return invalid("%s.image.source.base64.data: image cannot be empty", at)
	}
	return nil
}

// checkResults refuses two messages of a user in a row, and a conversation in which
// not every call is answered at the beginning of the very next message. (The
// provider's own server joins messages of one role; others with its API do not. Two
// of an assistant are what goes on after pause_turn, which only its own server says.)
func (r *anthropicRequest) checkResults() *problem {
	var used []string // ids of all calls so far
	var open []string // calls of the message before
	for i, m := range r.Messages {
		if i > 0 && m.Role == "user" && r.Messages[i-1].Role == "user" {
			return invalid("messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"%s\" roles in a row", m.Role)
		}
		if p := m.answers(open, i); p != nil {
			return p
		}
		open = nil
		for _, b := range m.blocks {
			if b.Type != "tool_use" {
				continue
			}
			if slices.Contains(used, b.ID) {
				return invalid("messages.%d: `tool_use` ids must be unique", i)
			}
			used, open = append(used, b.ID), append(open, b.ID)
		}
	}
	if len(open) > 0 {
		return withoutResult(len(r.Messages)-1, open)
	}
	return nil
}

// answers checks the results at the beginning of a message against the calls of the one before.
func (m *anthropicMessage) answers(open []string, i int) *problem {
	var answered []string
	others := false // something came that is no result
	for j, b := range m.blocks {
		if b.Type != "tool_result" {
			others = true
			continue
		}
		switch {
		case !slices.Contains(open, b.ToolUseID):
			return invalid("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at(i, "content", j), b.ToolUseID)
		case slices.Contains(answered, b.ToolUseID):
			return invalid("%s: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", at(i, "content", j), b.ToolUseID)
		case others:
			return withoutResult(i-1, open)
		}
		answered = append(answered, b.ToolUseID)
	}
	missing := slices.DeleteFunc(slices.Clone(open), func(id string) bool { return slices.Contains(answered, id) })
	if len(missing) > 0 {
		return withoutResult(i-1, missing)
	}
	return nil
}

func withoutResult(i int, ids []string) *problem {
	return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}

func (r *anthropicRequest) checkBreakpoints(system []anthropicBlock) *problem {
	found := 0
	count := func(raw json.RawMessage) {
		if isSet(raw) {
			found++
		}
	}
	for _, t := range r.Tools {
		count(t.CacheControl)
	}
	for _, b := range system {
		count(b.CacheControl)
	}
	for _, m := range r.Messages {
		for _, b := range m.blocks {
			count(b.CacheControl)
		}
	}
	if found > maxBreakpoints {
		return invalid("A maximum of %d blocks with cache_control may be provided. Found %d.", maxBreakpoints, found)
	}
	return nil
}
