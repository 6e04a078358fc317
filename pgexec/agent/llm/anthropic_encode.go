package llm

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// defaultMaxTokens is what Anthropic gets where the request says nothing.
const defaultMaxTokens = 8192

// cacheMark asks Anthropic to cache everything up to where it stands.
const cacheMark = `{"type":"ephemeral"}`

// anthropicFormat is the messages format.
type anthropicFormat struct{}

func (anthropicFormat) head(o *object, r *Request) {
	if r.System != "" {
		o.add("system", anthropicSystem(r))
	}
}

func (anthropicFormat) tool(t *Tool, last bool, r *Request) []byte {
	o := newObject()
	o.add("name", quote(t.Name))
	o.add("description", quote(t.Description))
	o.add("input_schema", t.Schema)
	if last && r.CacheBreakpoints {
		o.add("cache_control", []byte(cacheMark))
	}
	return o.bytes()
}

func anthropicSystem(r *Request) []byte {
	if !r.CacheBreakpoints {
		return quote(r.System)
	}
	block := newObject()
	block.add("type", quote("text"))
	block.add("text", quote(r.System))
	block.add("cache_control", []byte(cacheMark))
	return array([][]byte{block.bytes()})
}

// tail has the mark of the last message: a mark in the message itself would be
// gone from it a turn later, and the bytes would differ.
func (anthropicFormat) tail(o *object, r *Request) {
	maxTokens := r.MaxTokens
	if maxTokens == 0 {
		maxTokens = defaultMaxTokens
	}
	o.add("max_tokens", strconv.AppendInt(nil, maxTokens, 10))
	if r.CacheBreakpoints {
		o.add("cache_control", []byte(cacheMark))
	}
	o.addSampling(r)
	if r.Effort != "" {
		effort := newObject()
		effort.add("effort", quote(r.Effort))
		o.add("output_config", effort.bytes())
	}
}

func (anthropicFormat) choice(o *object, r *Request) {
	serial := r.ParallelCalls != nil && !*r.ParallelCalls
	kind := r.ToolChoice
	switch {
	case kind == "" && !serial:
		return
	case kind == "":
		kind = "auto"
	case kind == ChoiceRequired:
		kind = "any"
	}
	choice := newObject()
	choice.add("type", quote(kind))
	if serial && kind != ChoiceNone {
		choice.add("disable_parallel_tool_use", []byte("true"))
	}
	o.add("tool_choice", choice.bytes())
}

// messages puts what a user says into one message with the results before it:
// results first, all of a turn's in one message.
func (anthropicFormat) messages(_ *Request, steps []step) ([][]byte, error) {
	var list, user [][]byte
	flush := func() {
		if user != nil {
			list = append(list, message("user", array(user)))
			user = nil
		}
	}
	for _, s := range steps {
		if s.message.Role == RoleUser {
			user = append(user, anthropicParts(s.message.Parts)...)
			continue
		}
		flush()
		raw, err := sendableAnthropic(s.message.Raw)
		if err != nil {
			return nil, err
		}
		list = append(list, wellFormed(raw))
		for _, m := range s.results {
			user = append(user, anthropicResult(m))
		}
	}
	flush()
	return list, nil
}

func anthropicParts(parts []Part) [][]byte {
	var list [][]byte
	for _, p := range parts {
		switch {
		case p.Image != nil:
			list = append(list, typed("image", "source", anthropicSource(p.Image)))
		case !isBlank(p.Text): // a blank text is refused
			list = append(list, typed("text", "text", quote(p.Text)))
		}
	}
	return list
}

func anthropicSource(i *Image) []byte {
	if i.URL != "" {
		return typed("url", "url", quote(i.URL))
	}
	o := newObject()
	o.add("type", quote("base64"))
	o.add("media_type", quote(i.MediaType))
	o.add("data", quote(base64.StdEncoding.EncodeToString(i.Data)))
	return o.bytes()
}

func anthropicResult(m *Message) []byte {
	o := newObject()
	o.add("type", quote("tool_result"))
	o.add("tool_use_id", quote(m.CallID))
	switch text := textOf(m.Parts); {
	case len(imagesOf(m.Parts)) > 0:
		o.add("content", array(anthropicParts(m.Parts)))
	case !isBlank(text): // nothing is said by no content
		o.add("content", quote(text))
	}
	if m.IsError {
		o.add("is_error", []byte("true"))
	}
	return o.bytes()
}

// sendableAnthropic is a message as it was received, unless it says nothing at
// all: an answer that was refused or cut off while the model still thought. The
// provider takes none that is empty or ends with a thought.
func sendableAnthropic(raw json.RawMessage) ([]byte, error) {
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	content := o.values["content"]
	if content == nil || !content.isList {
		return raw, nil
	}
	if n := len(content.list); n > 0 {
		var last struct{ Type string }
		if err := json.Unmarshal(content.list[n-1].raw, &last); err != nil {
			return nil, err
		}
		if last.Type != "thinking" && last.Type != "redacted_thinking" {
			return raw, nil
		}
	}
	content.list = append(content.list, &value{raw: typed("text", "text", quote("(no answer)"))})
	return o.bytes(), nil
}

func (anthropicFormat) parse(raw json.RawMessage) (string, []Call, error) {
	var m struct {
		Role    Role            `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return "", nil, err
	}
	if err := checkRole(m.Role); err != nil {
		return "", nil, err
	}
	if len(m.Content) > 0 && m.Content[0] == '"' {
		var s string
		err := json.Unmarshal(m.Content, &s)
		return s, nil, err
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(m.Content, &blocks); err != nil {
		return "", nil, err
	}
	var text strings.Builder
	var calls []Call
	for _, raw := range blocks {
		block, err := parseObject(raw)
		if err != nil {
			return "", nil, err
		}
		switch block.text("type") {
		case "text":
			text.WriteString(block.text("text"))
		case "tool_use":
			calls = append(calls, newCall(block.text("id"), block.text("name"), string(block.raw("input"))))
		}
	}
	return text.String(), calls, nil
}

func (anthropicFormat) assistant(text string, calls []Call) json.RawMessage {
	var list [][]byte
	if !isBlank(text) {
		list = append(list, typed("text", "text", quote(text)))
	}
	for _, c := range calls {
		o := newObject()
		o.add("type", quote("tool_use"))
		o.add("id", quote(c.ID))
		o.add("name", quote(c.Name))
		o.add("input", c.argsToSend())
		list = append(list, o.bytes())
	}
	return message(string(RoleAssistant), array(list))
}
