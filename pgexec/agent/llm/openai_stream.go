package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// openAIStream assembles the chunks of one chat completion.
type openAIStream struct {
	ids     *minter
	message *object // all fields of the message but role and tool_calls
	calls   openAICalls
	finish  string
	usage   *openAIUsage
	model   string
	id      string
}

type openAIChunk struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Error   json.RawMessage `json:"error"`
	Usage   json.RawMessage `json:"usage"`
	Choices []struct {
		Index        int             `json:"index"`
		Delta        json.RawMessage `json:"delta"`
		Message      json.RawMessage `json:"message"` // where it is not streamed
		FinishReason string          `json:"finish_reason"`
		Error        json.RawMessage `json:"error"`
	} `json:"choices"`
	XGroq *struct {
		Usage json.RawMessage `json:"usage"`
	} `json:"x_groq"`
}

type openAIUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// normal counts reasoning as output also where a server counts it beside it: then
// only the total has it. In the same way it counts what was cached as input.
func (u *openAIUsage) normal() Usage {
	n := Usage{
		Input:      u.PromptTokens,
		CachedRead: u.PromptDetails.CachedTokens,
		CacheWrite: u.PromptDetails.CacheWriteTokens,
		Output:     u.CompletionTokens,
		Reasoning:  u.CompletionDetails.ReasoningTokens,
	}
	if n.Reasoning > 0 && u.TotalTokens == n.Input+n.Output+n.Reasoning {
		n.Output += n.Reasoning
	}
	if cached := n.CachedRead + n.CacheWrite; cached > n.Input {
		n.Input += cached
	}
	return n
}

func newOpenAIStream(r *Request) *openAIStream {
	return &openAIStream{ids: newMinter(r.Messages), message: newObject()}
}

func (s *openAIStream) complete() bool { return s.finish != "" }

func (s *openAIStream) event(ev event, show func(Delta)) (bool, error) {
	switch {
	case len(ev.data) == 0:
		return false, nil
	case bytes.HasPrefix(ev.data, []byte("[DONE]")):
		return true, nil
	case ev.name == "error":
		return true, newError(http.StatusOK, nil, ev.data)
	}
	return false, s.whole(ev.data, show)
}

// whole takes a chunk; a completion that is not streamed is one too.
func (s *openAIStream) whole(data []byte, show func(Delta)) error {
	var chunk openAIChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return &Error{Kind: Server, Message: fmt.Sprintf("an unreadable chunk (%v): %s", err, excerpt(string(data)))}
	}
	if isSet(chunk.Error) {
		return newError(http.StatusOK, nil, data)
	}
	if chunk.Model != "" {
		s.model = chunk.Model
	}
	if chunk.ID != "" {
		s.id = chunk.ID
	}
	s.count(chunk.Usage)
	if chunk.XGroq != nil {
		s.count(chunk.XGroq.Usage)
	}
	for _, c := range chunk.Choices {
		if c.Index != 0 {
			continue
		}
		if isSet(c.Error) {
			return newError(http.StatusOK, nil, fmt.Appendf(nil, `{"error":%s}`, c.Error))
		}
		for _, delta := range []json.RawMessage{c.Delta, c.Message} {
			if err := s.delta(delta, show); err != nil {
				return &Error{Kind: Server, Message: fmt.Sprintf("an unreadable delta (%v): %s", err, excerpt(string(delta)))}
			}
		}
		if c.FinishReason != "" {
			s.finish = c.FinishReason
		}
	}
	return nil
}

// count takes the usage that was said last. One that cannot be read is none: it is
// estimated then, and no reason to pay for the turn once more.
func (s *openAIStream) count(raw json.RawMessage) {
	var u openAIUsage
	if isSet(raw) && json.Unmarshal(raw, &u) == nil {
		s.usage = &u
	}
}

// isSet reports whether a field is there and not null.
func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func (s *openAIStream) delta(raw json.RawMessage, show func(Delta)) error {
	if !isSet(raw) {
		return nil
	}
	delta, err := parseObject(raw)
	if err != nil {
		return err
	}
	for _, name := range delta.names {
		switch {
		case name == "role" || delta.empty(name):
		case name == "tool_calls":
			if err := s.calls.join(delta.raw(name), show); err != nil {
				return fmt.Errorf("tool_calls: %w", err)
			}
		default:
			if err := s.message.join(name, delta.raw(name)); err != nil {
				return err
			}
		}
	}
	d := Delta{Text: delta.text("content"), Thinking: delta.text("reasoning_content")}
	if d.Thinking == "" {
		d.Thinking = delta.text("reasoning")
	}
	if d != (Delta{}) {
		show(d)
	}
	return nil
}

func (s *openAIStream) turn() (*Turn, error) {
	finish := strings.ToLower(s.finish)
	switch {
	case finish == "error":
		return nil, &Error{Kind: Server, Message: "the provider ended the answer with an error that it does not describe"}
	case strings.Contains(finish, "malformed_function_call"):
		return nil, &Error{Kind: ToolUseFailed, Code: s.finish, Message: "the model wrote a call that its provider could not read"}
	}
	t := &Turn{Stop: openAIStop(finish), Model: s.model, RequestID: s.id, Refusal: s.message.text("refusal")}
	cut := t.Stop == StopMaxTokens || t.Stop == StopContentFilter
	t.Message = s.assemble(cut)
	var err error
	if t.Text, t.Calls, err = (openAIFormat{}).parse(t.Message); err != nil {
		return nil, &Error{Kind: Server, Message: fmt.Sprintf("an unreadable message (%v): %s", err, excerpt(string(t.Message)))}
	}
	// What a server says about calls is not always so: whether there are some is.
	switch {
	case t.Refusal != "" && t.Stop == StopEnd:
		t.Stop = StopRefusal
	case len(t.Calls) > 0 && t.Stop == StopEnd:
		t.Stop = StopToolCalls
	case len(t.Calls) == 0 && t.Stop == StopToolCalls:
		t.Stop = StopEnd
	}
	if s.usage != nil {
		t.Usage = s.usage.normal()
	}
	return t, nil
}

func openAIStop(finish string) Stop {
	switch finish {
	case "length", "max_tokens":
		return StopMaxTokens
	case "content_filter":
		return StopContentFilter
	case "tool_calls", "function_call":
		return StopToolCalls
	default:
		return StopEnd
	}
}

// assemble writes the message: content always, calls, and all that the server
// added of its own, such as reasoning that it wants back.
func (s *openAIStream) assemble(cut bool) json.RawMessage {
	calls := s.calls.list(s.ids, cut)
	o := newObject()
	o.add("role", quote(string(RoleAssistant)))
	switch {
	case !s.message.empty("content"):
		o.put("content", s.message.values["content"])
	case len(calls) > 0:
		o.add("content", []byte("null"))
	default:
		o.add("content", []byte(`""`))
	}
	if len(calls) > 0 {
		o.add("tool_calls", array(calls))
	}
	for _, name := range s.message.names {
		if name != "content" && !s.message.empty(name) {
			o.put(name, s.message.values[name])
		}
	}
	return o.bytes()
}
