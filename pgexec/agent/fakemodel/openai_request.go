package fakemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type openaiRequest struct {
	Model    string          `json:"model"`
	Messages []openaiMessage `json:"messages"`
	Tools    *[]struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type openaiMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Refusal    *string         `json:"refusal"`
	ToolCalls  *[]openaiCall   `json:"tool_calls"`
	ToolCallID *string         `json:"tool_call_id"`
}

type openaiCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

// toolName is what both APIs accept as the name of a tool.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// parseOpenAI reads a request of chat completions, and refuses what the real API refuses (C46).
func parseOpenAI(body []byte) (*conversation, *problem) {
	var req openaiRequest
	c := newConversation(apiOpenAI, body)
	if err := json.Unmarshal(body, &req); err != nil {
		return c, invalid("We could not parse the JSON body of your request: %v", err)
	}
	c.model, c.stream = req.Model, req.Stream
	c.includeUsage = req.StreamOptions != nil && req.StreamOptions.IncludeUsage
	if p := req.checkSettings(); p != nil {
		return c, p
	}
	if p := req.readTools(c); p != nil {
		return c, p
	}
	for i := range req.Messages {
		if p := req.Messages[i].read(c, i); p != nil {
			return c, p
		}
	}
	return c, req.checkResults()
}

func (r *openaiRequest) checkSettings() *problem {
	switch {
	case r.Model == "":
		return invalidParam("model", "you must provide a model parameter")
	case len(r.Messages) == 0:
		return invalidParam("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	case r.StreamOptions != nil && !r.Stream:
		return invalidParam("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case r.MaxTokens != nil && r.MaxCompletionTokens != nil:
		return invalidParam("max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case r.MaxTokens != nil && *r.MaxTokens < 1:
		return invalidParam("max_tokens", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got %d instead.", *r.MaxTokens)
	case r.MaxCompletionTokens != nil && *r.MaxCompletionTokens < 1:
		return invalidParam("max_completion_tokens", "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1, but got %d instead.", *r.MaxCompletionTokens)
	case r.Tools == nil && isSet(r.ToolChoice):
		return invalidParam("tool_choice", "'tool_choice' is only allowed when 'tools' are specified.")
	case r.Tools == nil && r.ParallelToolCalls != nil:
		return invalidParam("parallel_tool_calls", "'parallel_tool_calls' is only allowed when 'tools' are specified.")
	}
	return nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func (r *openaiRequest) readTools(c *conversation) *problem {
	if r.Tools == nil {
		return nil
	}
	if len(*r.Tools) == 0 {
		return invalidParam("tools", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	for i, tool := range *r.Tools {
		name, param := tool.Function.Name, fmt.Sprintf("tools[%d].function.name", i)
		switch {
		case tool.Type != "function":
			return invalidParam(fmt.Sprintf("tools[%d].type", i), "Invalid value: '%s'. Supported values are: 'function'.", tool.Type)
		case !toolName.MatchString(name):
			return invalidParam(param, "Invalid '%s': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' of at most 64 characters, but got %q.", param, name)
		case slices.Contains(c.tools, name):
			return invalidParam(param, "Function name '%s' is given twice.", name)
		}
		if wrong := schemaProblem(tool.Function.Parameters); wrong != "" {
			return invalidParam(fmt.Sprintf("tools[%d].function.parameters", i), "Invalid schema for function '%s': %s.", name, wrong)
		}
		c.tools = append(c.tools, name)
	}
	return nil
}

// read checks one message by itself and adds it to the conversation.
func (m *openaiMessage) read(c *conversation, i int) *problem {
	if m.ToolCalls != nil && m.Role != "assistant" {
		return invalidParam(fmt.Sprintf("messages.[%d].tool_calls", i), "'tool_calls' is only allowed for messages with role 'assistant'.")
	}
	param := fmt.Sprintf("messages.[%d].content", i)
	text, ok := m.text()
	if !ok {
		return invalidParam(param, "Invalid value for 'content' of role '%s': expected a string or a list of parts that the role allows.", m.Role)
	}
	switch m.Role {
	case "system", "developer":
		c.system = strings.TrimPrefix(c.system+"\n"+text, "\n")
	case "user":
		if !isSet(m.Content) {
			return invalidParam(param, "Invalid value for 'content': expected a string, got null.")
		}
		c.addUser(text)
	case "assistant":
		return m.readAssistant(c, i)
	case "tool":
		if m.ToolCallID == nil {
			return invalidParam(fmt.Sprintf("messages.[%d].tool_call_id", i), "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.")
		}
		if !isSet(m.Content) {
			return invalidParam(param, "Invalid value for 'content': expected a string, got null.")
		}
		c.addResult(*m.ToolCallID, text)
	default:
		return invalidParam(fmt.Sprintf("messages.[%d].role", i), "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.", m.Role)
	}
	return nil
}

func (m *openaiMessage) readAssistant(c *conversation, i int) *problem {
	c.addAssistant()
	param := fmt.Sprintf("messages.[%d].tool_calls", i)
	if m.ToolCalls == nil {
		if !isSet(m.Content) && m.Refusal == nil {
			return invalidParam(fmt.Sprintf("messages.[%d].content", i), "Invalid value for 'content': expected a string, got null.")
		}
		return nil
	}
	if len(*m.ToolCalls) == 0 {
		return invalidParam(param, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
	}
	for j, call := range *m.ToolCalls {
		at := fmt.Sprintf("%s[%d]", param, j)
		switch {
		case call.ID == "":
			return invalidParam(at+".id", "Invalid '%s.id': empty string. Expected a string with minimum length 1, but got an empty string instead.", at)
		case call.Type != "function":
			return invalidParam(at+".type", "Invalid value: '%s'. Supported values are: 'function'.", call.Type)
		case !toolName.MatchString(call.Function.Name):
			return invalidParam(at+".function.name", "Invalid '%s.function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.", at)
		case call.Function.Arguments == nil:
			return invalidParam(at+".function.arguments", "Missing required parameter: '%s.function.arguments'.", at)
		}
		c.calls[call.ID] = call.Function.Name
	}
	return nil
}

// partTypes are the parts of content that a role allows.
var partTypes = map[string][]string{
	"user":      {"text", "image_url", "input_audio", "file"},
	"assistant": {"text", "refusal"},
	"tool":      {"text"},
	"system":    {"text"},
	"developer": {"text"},
}

// text is the content's text; not ok if the content has a form that the role does not allow.
func (m *openaiMessage) text() (text string, ok bool) {
	if !isSet(m.Content) {
		return "", true
	}
	if json.Unmarshal(m.Content, &text) == nil {
		return text, true
	}
	var parts []struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		ImageURL *struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	var texts []string
	for _, p := range parts {
		switch {
		case !slices.Contains(partTypes[m.Role], p.Type),
			p.Type == "text" && p.Text == nil,
			p.Type == "image_url" && (p.ImageURL == nil || !isImageURL(p.ImageURL.URL)):
			return "", false
		}
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, "\n"), true
}

func isImageURL(url string) bool {
	return slices.ContainsFunc([]string{"https://", "http://", "data:image/"}, func(s string) bool { return strings.HasPrefix(url, s) })
}

// checkResults refuses a conversation in which not every call is followed, before
// anything else, by exactly one result.
func (r *openaiRequest) checkResults() *problem {
	var open, answered []string // calls of the last assistant message
	for i, m := range r.Messages {
		if m.Role == "tool" {
			id := *m.ToolCallID
			switch {
			case open == nil:
				return invalidParam(fmt.Sprintf("messages.[%d].role", i), "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
			case slices.Contains(answered, id):
				return invalidParam(fmt.Sprintf("messages.[%d].tool_call_id", i), "Invalid parameter: 'tool_call_id' of '%s' is answered twice.", id)
			case !slices.Contains(open, id):
				return invalidParam(fmt.Sprintf("messages.[%d].tool_call_id", i), "Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of previous message.", id)
			}
			answered = append(answered, id)
			continue
		}
		if p := unanswered(open, answered); p != nil {
			return p
		}
		open, answered = nil, nil
		if m.ToolCalls != nil {
			for _, call := range *m.ToolCalls {
				if slices.Contains(open, call.ID) {
					return invalidParam(fmt.Sprintf("messages.[%d].tool_calls", i), "Duplicate 'tool_calls' id '%s'.", call.ID)
				}
				open = append(open, call.ID)
			}
		}
	}
	return unanswered(open, answered)
}

func unanswered(open, answered []string) *problem {
	missing := slices.DeleteFunc(slices.Clone(open), func(id string) bool { return slices.Contains(answered, id) })
	if len(missing) == 0 {
		return nil
	}
	return invalidParam("messages", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(missing, ", "))
}

// schemaProblem says what is wrong with the schema of a function's arguments, "" if nothing is.
func schemaProblem(raw json.RawMessage) string {
	var schema struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
	}
	switch {
	case !isSet(raw): // a function without arguments
	case json.Unmarshal(raw, &schema) != nil:
		return "it is not an object"
	case schema.Type != "object":
		return fmt.Sprintf("schema must be a JSON Schema of 'type: \"object\"', got 'type: %q'", schema.Type)
	case !isSet(schema.Properties):
		return "In context=(), object schema missing properties"
	}
	return ""
}
