package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// anthropicStream assembles the events of one message.
type anthropicStream struct {
	ids     *minter
	blocks  []*anthropicBlock
	model   string
	id      string
	stop    string
	refusal string
	usage   anthropicUsage
	stopped bool // message_stop was seen
}

// anthropicBlock is one content block, of any type. Its fields are kept as they
// came, and a string that a delta brings is added to the field of that name.
type anthropicBlock struct {
	index  int
	fields *object
	input  []byte // the arguments, between quotes, not decoded
}

// anthropicUsage has what was said last; a field that is left out keeps its value.
type anthropicUsage struct {
	InputTokens         *int64 `json:"input_tokens"`
	CacheCreationTokens *int64 `json:"cache_creation_input_tokens"`
	CacheReadTokens     *int64 `json:"cache_read_input_tokens"`
	OutputTokens        *int64 `json:"output_tokens"`
	OutputDetails       struct {
		ThinkingTokens int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// normal counts cached input as input, which the provider does not.
func (u *anthropicUsage) normal() Usage {
	n := Usage{CachedRead: of(u.CacheReadTokens), CacheWrite: of(u.CacheCreationTokens), Output: of(u.OutputTokens)}
	n.Input = of(u.InputTokens) + n.CachedRead + n.CacheWrite
	n.Reasoning = u.OutputDetails.ThinkingTokens
	return n
}

func of(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

type anthropicStop struct {
	StopReason  string `json:"stop_reason"`
	StopDetails *struct {
		Category    string `json:"category"`
		Explanation string `json:"explanation"`
	} `json:"stop_details"`
}

type anthropicMessage struct {
	anthropicStop
	ID      string            `json:"id"`
	Model   string            `json:"model"`
	Content []json.RawMessage `json:"content"`
	Usage   json.RawMessage   `json:"usage"`
}

type anthropicEvent struct {
	Type         string           `json:"type"`
	Message      anthropicMessage `json:"message"`
	Index        int              `json:"index"`
	ContentBlock json.RawMessage  `json:"content_block"`
	Delta        json.RawMessage  `json:"delta"`
	Usage        json.RawMessage  `json:"usage"`
}

func newAnthropicStream(r *Request) *anthropicStream {
	return &anthropicStream{ids: newMinter(r.Messages)}
}

func (s *anthropicStream) complete() bool { return s.stopped }

func (s *anthropicStream) event(ev event, show func(Delta)) (bool, error) {
	if len(ev.data) == 0 {
		return false, nil
	}
	e := anthropicEvent{Index: noIndex}
	if err := json.Unmarshal(ev.data, &e); err != nil {
		return false, unreadable(err, ev.data)
	}
	if e.Type == "" {
		e.Type = ev.name
	}
	if e.Type == "error" || ev.name == "error" {
		return true, newError(http.StatusOK, nil, ev.data)
	}
	if err := s.take(&e, show); err != nil {
		return false, unreadable(err, ev.data)
	}
	return s.stopped, nil
}

func unreadable(err error, data []byte) *Error {
	return &Error{Kind: Server, Message: fmt.Sprintf("an unreadable event (%v): %s", err, excerpt(string(data)))}
}

// take does what an event says; those of other types are no part of the message.
func (s *anthropicStream) take(e *anthropicEvent, show func(Delta)) error {
	switch e.Type {
	case "message_start": // a proxy may repeat it
		s.begin(&e.Message)
	case "content_block_start":
		return s.open(e.Index, e.ContentBlock, show)
	case "content_block_delta":
		return s.delta(e.Index, e.Delta, show)
	case "message_delta":
		var stop anthropicStop
		if err := json.Unmarshal(e.Delta, &stop); err != nil {
			return err
		}
		s.end(&stop)
		s.count(e.Usage)
	case "message_stop":
		s.stopped = true
	}
	return nil
}

func (s *anthropicStream) begin(m *anthropicMessage) {
	s.id, s.model = m.ID, m.Model
	s.count(m.Usage)
}

func (s *anthropicStream) end(stop *anthropicStop) {
	if stop.StopReason != "" {
		s.stop = stop.StopReason
	}
	if d := stop.StopDetails; d != nil && d.Explanation+d.Category != "" {
		s.refusal = d.Explanation
		if d.Category != "" {
			s.refusal = d.Category + ": " + d.Explanation
		}
	}
}

// count takes what is said of the usage, as openAIStream.count does.
func (s *anthropicStream) count(raw json.RawMessage) {
	u := s.usage
	if isSet(raw) && json.Unmarshal(raw, &u) == nil {
		s.usage = u
	}
}

func (s *anthropicStream) open(index int, raw json.RawMessage, show func(Delta)) error {
	fields, err := parseObject(raw)
	if err != nil {
		return err
	}
	kind := fields.text("type")
	if kind == "" {
		return errors.New("a content block without type")
	}
	s.blocks = append(s.blocks, &anthropicBlock{index: index, fields: fields})
	if kind == "tool_use" {
		show(Delta{Call: fields.text("name")})
	}
	return nil
}

func (s *anthropicStream) delta(index int, raw json.RawMessage, show func(Delta)) error {
	b := s.block(index)
	if b == nil {
		return fmt.Errorf("block %d was not begun", index)
	}
	d, err := parseObject(raw)
	if err != nil {
		return err
	}
	if piece := (Delta{Text: d.text("text"), Thinking: d.text("thinking")}); piece != (Delta{}) {
		show(piece)
	}
	return b.join(d)
}

// block is the one that an index means: the last that was begun with it, or the
// last of all where there is none.
func (s *anthropicStream) block(index int) *anthropicBlock {
	for _, b := range slices.Backward(s.blocks) {
		if b.index == index || index == noIndex {
			return b
		}
	}
	return nil
}

func (b *anthropicBlock) join(d *object) error {
	switch d.text("type") {
	case "input_json_delta":
		if v := d.values["partial_json"]; v != nil && v.isText {
			b.input = append(b.input, v.text...)
		}
		return nil
	case "citations_delta":
		return b.fields.join("citations", array([][]byte{d.raw("citation")}))
	}
	for _, name := range d.names {
		if name == "type" {
			continue
		}
		if err := b.fields.join(name, d.raw(name)); err != nil {
			return err
		}
	}
	return nil
}

// whole takes a message that was not streamed.
func (s *anthropicStream) whole(body []byte, show func(Delta)) error {
	var m struct {
		anthropicMessage
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return unreadable(err, body)
	}
	if isSet(m.Error) {
		return newError(http.StatusOK, nil, body)
	}
	for i, raw := range m.Content {
		if err := s.open(i, raw, show); err != nil {
			return unreadable(err, raw)
		}
		if text := s.blocks[i].fields.text("text"); text != "" {
			show(Delta{Text: text})
		}
	}
	s.end(&m.anthropicStop)
	s.begin(&m.anthropicMessage)
	s.stopped = m.StopReason != ""
	return nil
}

func (s *anthropicStream) turn() (*Turn, error) {
	t := &Turn{Stop: anthropicStopOf(s.stop), Model: s.model, RequestID: s.id, Usage: s.usage.normal()}
	t.Message = s.assemble(t.Stop)
	var err error
	if t.Text, t.Calls, err = (anthropicFormat{}).parse(t.Message); err != nil {
		return nil, unreadable(err, t.Message)
	}
	switch {
	case t.Stop == StopRefusal:
		t.Refusal = s.refusal
	case len(t.Calls) > 0 && t.Stop == StopEnd:
		t.Stop = StopToolCalls
	case len(t.Calls) == 0 && t.Stop == StopToolCalls:
		t.Stop = StopEnd
	}
	return t, nil
}

func anthropicStopOf(reason string) Stop {
	switch reason {
	case "tool_use":
		return StopToolCalls
	case "max_tokens":
		return StopMaxTokens
	case "pause_turn":
		return StopPause
	case "refusal":
		return StopRefusal
	case "model_context_window_exceeded":
		return StopContextWindow
	default:
		return StopEnd
	}
}

// assemble writes the message, without what cannot be sent back: blank texts and
// thoughts, and a thought that was cut off before its signature.
func (s *anthropicStream) assemble(stop Stop) json.RawMessage {
	cut := stop == StopMaxTokens || stop == StopContextWindow || stop == StopRefusal
	blocks := slices.Clone(s.blocks)
	slices.SortStableFunc(blocks, func(a, b *anthropicBlock) int { return a.index - b.index })
	var list [][]byte
	for i, b := range blocks {
		cutHere := cut && i == len(blocks)-1
		switch b.fields.text("type") {
		case "text":
			if isBlank(b.fields.text("text")) {
				continue
			}
		case "thinking":
			if b.fields.empty("signature") && (cutHere || b.fields.empty("thinking")) {
				continue
			}
		case "tool_use":
			b.finishCall(s.ids, cutHere)
		default:
			b.finishInput()
		}
		list = append(list, b.fields.bytes())
	}
	return message(string(RoleAssistant), array(list))
}

// finishCall gives a call the input that arrived in pieces.
func (b *anthropicBlock) finishCall(ids *minter, cut bool) {
	given := b.fields.text("id")
	if id := ids.id(given); id != given {
		b.fields.add("id", quote(id))
	}
	name := b.fields.text("name")
	if sendable := sendableName(name); sendable != name {
		b.fields.add("name", quote(sendable))
	}
	text := unquote(b.input)
	if text == "" && !cut { // what is cut off in an answer that is not streamed looks complete
		text = string(b.fields.raw("input"))
	}
	b.fields.add("input", sendableArgs(text, cut))
}

// finishInput does the same for a tool that the provider runs.
func (b *anthropicBlock) finishInput() {
	if len(b.input) == 0 {
		return
	}
	text := unquote(b.input)
	if !isObject(text) {
		text = "{}"
	}
	b.fields.add("input", []byte(text))
}
