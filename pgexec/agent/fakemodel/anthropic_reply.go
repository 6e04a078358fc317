package fakemodel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// anthropicStops are Anthropic's words for the end of a reply.
var anthropicStops = map[string]string{
	stopEnd: "end_turn", stopCalls: "tool_use", stopFilter: "refusal", stopWindow: "model_context_window_exceeded",
}

// at is the place of something in the messages, as the API's errors name it.
func at(i int, path ...any) string {
	out := fmt.Sprintf("messages.%d", i)
	for _, p := range path {
		out += fmt.Sprintf(".%v", p)
	}
	return out
}

// sign is the signature of thinking, which has to come back with exactly this text.
func sign(thinking string) string {
	sum := sha256.Sum256([]byte("fakemodel thinking:" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (u usage) anthropic() object {
	return object{
		"input_tokens":                u.Input - u.Cached - u.CacheWrite,
		"cache_read_input_tokens":     u.Cached,
		"cache_creation_input_tokens": u.CacheWrite,
		"output_tokens":               u.Output,
		"output_tokens_details":       object{"thinking_tokens": u.Reasoning},
	}
}

// block is one content block of a reply.
type block struct {
	start object // as content_block_start has it
	whole object // as a document has it
	// deltas are the rest, in pieces.
	deltas []object
}

func (t *turn) blocks() []block {
	var out []block
	if t.thinking != "" {
		b := block{
			start: object{"type": "thinking", "thinking": "", "signature": ""},
			whole: object{"type": "thinking", "thinking": t.thinking, "signature": sign(t.thinking)},
		}
		for _, piece := range t.reply.pieces(t.thinking) {
			b.deltas = append(b.deltas, object{"type": "thinking_delta", "thinking": piece})
		}
		b.deltas = append(b.deltas, object{"type": "signature_delta", "signature": sign(t.thinking)})
		out = append(out, b)
	}
	if t.text != "" {
		b := block{start: object{"type": "text", "text": ""}, whole: object{"type": "text", "text": t.text}}
		for _, piece := range t.reply.pieces(t.text) {
			b.deltas = append(b.deltas, object{"type": "text_delta", "text": piece})
		}
		out = append(out, b)
	}
	for _, c := range t.calls {
		out = append(out, t.toolUse(c))
	}
	return out
}

func (t *turn) toolUse(c toolCall) block {
	id := strings.Replace(c.id, "call_"+t.conv.digest, "toolu_"+t.conv.digest, 1)
	b := block{
		start: object{"type": "tool_use", "id": id, "name": c.name, "input": object{}},
		whole: object{"type": "tool_use", "id": id, "name": c.name, "input": c.args},
	}
	if json.Valid([]byte(c.args)) { // else it stays text: a document has no other place for it
		b.whole["input"] = json.RawMessage(c.args)
	}
	for _, piece := range t.reply.pieces(c.args) {
		b.deltas = append(b.deltas, object{"type": "input_json_delta", "partial_json": piece})
	}
	return b
}

// anthropicMessage is the message without what only its end knows.
func (t *turn) anthropicMessage(content []object, stop any, u usage) object {
	return object{
		"id": "msg_" + t.conv.digest, "type": "message", "role": "assistant", "model": t.conv.model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": u.anthropic(),
	}
}

// anthropic is the whole reply as one document.
func (t *turn) anthropic() []byte {
	content := []object{}
	for _, b := range t.blocks() {
		content = append(content, b.whole)
	}
	message := t.anthropicMessage(content, nil, t.usage)
	maps.Copy(message, t.anthropicStop())
	return mustEncode(message)
}

// anthropicStop says why the reply ends.
func (t *turn) anthropicStop() object {
	stop := object{"stop_reason": t.stopWord(anthropicStops), "stop_sequence": nil}
	if stop["stop_reason"] == stopRefusal {
		stop["stop_details"] = object{"type": "refusal", "category": nil, "explanation": orNull(t.text)}
	}
	return stop
}

// anthropicEvents is the reply as a stream.
func (t *turn) anthropicEvents() []event {
	begun := t.usage
	begun.Output, begun.Reasoning = 1, 0
	events := []event{
		named("message_start", object{"message": t.anthropicMessage([]object{}, nil, begun)}),
		named("ping", object{}),
	}
	for i, b := range t.blocks() {
		events = append(events, named("content_block_start", object{"index": i, "content_block": b.start}))
		for _, delta := range b.deltas {
			e := named("content_block_delta", object{"index": i, "delta": delta})
			e.content = true
			events = append(events, e)
		}
		events = append(events, named("content_block_stop", object{"index": i}))
	}
	end := named("message_delta", object{
		"delta": t.anthropicStop(),
		"usage": t.usage.anthropic(),
	})
	end.terminal = true
	return append(events, end, named("message_stop", object{}))
}

func named(name string, data object) event {
	data["type"] = name
	return event{name: name, data: mustEncode(data)}
}
