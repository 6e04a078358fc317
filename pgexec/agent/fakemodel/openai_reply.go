package fakemodel

// openaiStops are OpenAI's words for the end of a reply.
var openaiStops = map[string]string{
	stopEnd: "stop", stopCalls: "tool_calls", stopMaxTokens: "length", stopRefusal: "stop", stopWindow: "length",
}

// created is when all replies say they were made: equal requests have equal replies.
const created = 1767225600

func (u usage) openai() object {
	return object{
		"prompt_tokens":             u.Input,
		"completion_tokens":         u.Output,
		"total_tokens":              u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
		"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
	}
}

// openai is the whole reply as one document.
func (t *turn) openai() []byte {
	message := object{"role": "assistant", "content": orNull(t.text), "refusal": nil}
	if t.stop() == stopRefusal {
		message["content"], message["refusal"] = nil, t.text
	}
	if t.thinking != "" {
		message["reasoning_content"] = t.thinking
	}
	var calls []object
	for _, c := range t.calls {
		calls = append(calls, object{"id": c.id, "type": "function", "function": object{"name": c.name, "arguments": c.args}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	return mustEncode(object{
		"id": t.openaiID(), "object": "chat.completion", "created": created, "model": t.conv.model,
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": t.stopWord(openaiStops)}},
		"usage":   t.usage.openai(),
	})
}

func (t *turn) openaiID() string { return "chatcmpl-" + t.conv.digest }

// openaiEvents is the reply as a stream.
func (t *turn) openaiEvents() []event {
	role := object{"role": "assistant", "content": ""}
	if t.text == "" {
		role["content"] = nil
	}
	events := []event{t.openaiDelta(role, nil)}
	add := func(delta object) {
		e := t.openaiDelta(delta, nil)
		e.content = true
		events = append(events, e)
	}
	for _, field := range []struct{ name, text string }{{"reasoning_content", t.thinking}, {t.textField(), t.text}} {
		if field.text == "" {
			continue
		}
		for _, piece := range t.reply.pieces(field.text) {
			add(object{field.name: piece})
		}
	}
	for _, c := range t.calls {
		add(c.openaiDelta(object{"id": c.id, "type": "function", "function": object{"name": c.name, "arguments": ""}}))
		for _, piece := range t.reply.pieces(c.args) {
			add(c.openaiDelta(object{"function": object{"arguments": piece}}))
		}
	}
	finish := t.openaiDelta(object{}, t.stopWord(openaiStops))
	finish.terminal = true
	events = append(events, finish)
	if t.conv.includeUsage {
		events = append(events, event{data: t.openaiChunk([]object{}, t.usage.openai())})
	}
	return append(events, event{data: []byte("[DONE]")})
}

// textField is where the text goes.
func (t *turn) textField() string {
	if t.stop() == stopRefusal {
		return "refusal"
	}
	return "content"
}

// openaiDelta wraps what is said of the call.
func (c toolCall) openaiDelta(call object) object {
	if c.index != nil {
		call["index"] = *c.index
	}
	return object{"tool_calls": []object{call}}
}

func (t *turn) openaiDelta(delta object, finish any) event {
	choice := object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}
	return event{data: t.openaiChunk([]object{choice}, nil)}
}

func (t *turn) openaiChunk(choices []object, usage any) []byte {
	chunk := object{
		"id": t.openaiID(), "object": "chat.completion.chunk", "created": created, "model": t.conv.model,
		"choices": choices,
	}
	if t.conv.includeUsage {
		chunk["usage"] = usage
	}
	return mustEncode(chunk)
}
