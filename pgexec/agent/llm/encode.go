package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Encode gives the bytes of a request, the same ones for the same request.
//
// What changes between turns comes last: model, system prompt, tools and
// messages first, in this order, then everything else. So the next request of a
// conversation begins with the bytes of this one up to the end of its messages,
// and the provider's cache holds.
//
// It refuses, by name of the call, a conversation in which a call has no result
// or two, or a result no call: the provider would refuse it, and every later one.
func Encode(p Provider, model string, r *Request) ([]byte, error) {
	f, err := formatOf(p)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	body, err := encodeBody(f, model, r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return body, nil
}

// ParseAssistant takes an assistant message of a provider apart, as Do does it
// with the one it received: same text, same calls. Only the fault of a call that
// the provider itself refused (FailedTurn) is not to be seen in the message.
func ParseAssistant(p Provider, raw json.RawMessage) (text string, calls []Call, err error) {
	f, err := formatOf(p)
	if err == nil {
		text, calls, err = f.parse(raw)
	}
	if err != nil {
		return "", nil, fmt.Errorf("parse assistant message: %w", err)
	}
	return text, calls, nil
}

// AssistantMessage makes a message that says text and makes calls, for Message.Raw
// where no provider gave one: another provider's conversation that goes on here.
func AssistantMessage(p Provider, text string, calls []Call) (json.RawMessage, error) {
	f, err := formatOf(p)
	if err != nil {
		return nil, fmt.Errorf("make assistant message: %w", err)
	}
	return f.assistant(text, calls), nil
}

// format is one provider's way to write things down.
type format interface {
	parse(raw json.RawMessage) (text string, calls []Call, err error)
	assistant(text string, calls []Call) json.RawMessage
	// head adds what comes before the messages, tail what comes after them.
	head(o *object, r *Request)
	tool(t *Tool, last bool, r *Request) []byte
	messages(r *Request, steps []step) ([][]byte, error)
	tail(o *object, r *Request)
	// choice adds how tools are chosen; without tools providers refuse that.
	choice(o *object, r *Request)
}

func formatOf(p Provider) (format, error) {
	switch p {
	case OpenAI:
		return openAIFormat{}, nil
	case Anthropic:
		return anthropicFormat{}, nil
	default:
		return nil, fmt.Errorf("provider is %q, must be %q or %q", p, OpenAI, Anthropic)
	}
}

func encodeBody(f format, model string, r *Request) ([]byte, error) {
	extra, err := parseExtra(r.Extra)
	if err != nil {
		return nil, err
	}
	tools, err := encodeTools(f, r, extra)
	if err != nil {
		return nil, err
	}
	steps, err := stepsOf(f, r.Messages)
	if err != nil {
		return nil, err
	}
	messages, err := f.messages(r, steps)
	if err != nil {
		return nil, err
	}
	if err := r.checkSettings(model); err != nil {
		return nil, err
	}
	o := newObject()
	o.add("model", quote(model))
	f.head(o, r)
	if tools != nil {
		o.add("tools", array(tools))
	}
	o.add("messages", array(messages))
	o.add("stream", []byte("true"))
	f.tail(o, r)
	if tools != nil {
		f.choice(o, r)
	}
	o.addExtra(extra)
	return o.bytes(), nil
}

func (r *Request) checkSettings(model string) error {
	if model == "" {
		return errors.New("the model has no name")
	}
	if r.MaxTokens < 0 {
		return fmt.Errorf("max tokens is %d, must not be negative", r.MaxTokens)
	}
	if c := r.ToolChoice; c != "" && c != ChoiceAuto && c != ChoiceNone && c != ChoiceRequired {
		return fmt.Errorf("tool choice is %q, must be %q, %q or %q", c, ChoiceAuto, ChoiceNone, ChoiceRequired)
	}
	for name, v := range map[string]*float64{"temperature": r.Temperature, "top_p": r.TopP} {
		if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			return fmt.Errorf("%s is %v, must be a number", name, *v)
		}
	}
	return nil
}

// sortedTools brings tools into the one order that every request has them in.
func sortedTools(tools []Tool) ([]Tool, error) {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	for i := range tools {
		t := &tools[i]
		if t.Name == "" {
			return nil, errors.New("a tool has no name")
		}
		if i > 0 && t.Name == tools[i-1].Name {
			return nil, fmt.Errorf("two tools have the name %q", t.Name)
		}
		if len(t.Schema) == 0 {
			t.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		schema, err := parseObject(t.Schema)
		if err != nil || !json.Valid(t.Schema) {
			return nil, fmt.Errorf("the schema of tool %q is no JSON object: %s", t.Name, excerpt(string(t.Schema)))
		}
		t.Schema = schema.ofObject(t.Schema)
	}
	return tools, nil
}

// encodeTools writes our tools, and behind them those that the provider runs.
// ofObject is a schema as providers take it: both demand the type, and OpenAI the
// properties too, which JSON Schema and MCP servers leave out. One that has them stays as it is.
func (o *object) ofObject(raw json.RawMessage) json.RawMessage {
	if !o.empty("type") && o.values["properties"] != nil {
		return raw
	}
	if o.empty("type") {
		o.add("type", quote("object"))
	}
	if o.values["properties"] == nil {
		o.add("properties", []byte("{}"))
	}
	return o.bytes()
}

func encodeTools(f format, r *Request, extra *object) ([][]byte, error) {
	tools, err := sortedTools(r.Tools)
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for i := range tools {
		list = append(list, f.tool(&tools[i], i == len(tools)-1, r))
	}
	own := extra.values["tools"]
	if own == nil {
		return list, nil
	}
	if !own.isList {
		return nil, fmt.Errorf("extra has tools that are no list: %s", excerpt(string(own.append(nil))))
	}
	for _, t := range own.list {
		list = append(list, t.raw)
	}
	return list, nil
}

// reserved are the fields that Extra cannot replace.
var reserved = []string{"model", "messages", "system", "stream"}

func parseExtra(extra json.RawMessage) (*object, error) {
	if len(extra) == 0 {
		return newObject(), nil
	}
	fields, err := parseObject(extra)
	if err != nil || !json.Valid(extra) {
		return nil, fmt.Errorf("extra is no JSON object: %s", excerpt(string(extra)))
	}
	for _, name := range fields.names {
		if slices.Contains(reserved, name) {
			return nil, fmt.Errorf("extra has the field %q, which it cannot replace: remove it", name)
		}
	}
	return fields, nil
}

// addExtra puts the definition's own fields into the request.
func (o *object) addExtra(extra *object) {
	for _, name := range extra.names {
		switch v := extra.values[name]; {
		case name == "tools": // are there already
		case string(v.raw) == "null":
			o.remove(name)
		default:
			o.put(name, v)
		}
	}
}

// addSampling adds what both formats call the same.
func (o *object) addSampling(r *Request) {
	if r.Temperature != nil {
		o.add("temperature", number(*r.Temperature))
	}
	if r.TopP != nil {
		o.add("top_p", number(*r.TopP))
	}
}

func number(v float64) []byte { return strconv.AppendFloat(nil, v, 'g', -1, 64) }
