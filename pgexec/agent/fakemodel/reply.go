package fakemodel

import (
	"fmt"
	"slices"
)

// answer is what a request gets of the rule.
func (r *rule) answer(c *conversation) (*turn, *problem) {
	if r.Error != nil {
		return nil, &problem{failure: *r.Error}
	}
	t, err := r.Reply.turnOf(c)
	if err != nil { // a template that fails with this conversation only
		return nil, invalid("fakemodel: %s: %v", r.label, err)
	}
	return t, nil
}

// turnOf renders a reply for the conversation.
func (r *reply) turnOf(c *conversation) (*turn, error) {
	t := &turn{reply: r, conv: c}
	var err error
	if t.thinking, err = c.render(r.Thinking); err != nil {
		return nil, err
	}
	if t.text, err = c.render(r.Text); err != nil {
		return nil, err
	}
	for i := range r.Calls {
		spec := &r.Calls[i]
		out := toolCall{name: spec.Name, id: fmt.Sprintf("call_%s_%d", c.digest, i), index: &i}
		if out.args, err = spec.arguments(c); err != nil {
			return nil, err
		}
		if spec.ID != nil {
			out.id = *spec.ID
		}
		if spec.Index != nil {
			out.index = &spec.Index.n
			if spec.Index.missing {
				out.index = nil
			}
		}
		t.calls = append(t.calls, out)
	}
	t.usage = r.usageFor(c, t)
	return t, nil
}

// turn is a reply with everything filled in.
type turn struct {
	reply          *reply
	conv           *conversation
	thinking, text string
	calls          []toolCall
	usage          usage
}

type toolCall struct {
	name, id, args string
	index          *int // nil: missing
}

// usageFor is the script's, or a plausible one that depends on the request and the reply alone.
func (r *reply) usageFor(c *conversation, t *turn) usage {
	if r.Usage != nil {
		return *r.Usage
	}
	const bytesPerToken = 4
	out := len(t.text) + len(t.thinking)
	for _, call := range t.calls {
		out += len(call.name) + len(call.args)
	}
	return usage{
		Input:     int64(c.size/bytesPerToken + 1),
		Output:    int64(out/bytesPerToken + 1),
		Reasoning: int64(len(t.thinking) / bytesPerToken),
	}
}

// pieces cuts text into chunks of the reply's size; empty text is one empty chunk.
func (r *reply) pieces(text string) []string {
	size := r.Chunk
	if size == 0 {
		size = 20
	}
	var out []string
	for runes := range slices.Chunk([]rune(text), size) {
		out = append(out, string(runes))
	}
	if out == nil {
		return []string{""}
	}
	return out
}

// object is a JSON object as it goes out: the names are sorted, so equal
// replies have equal bytes.
type object = map[string]any
