package llm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// openAICalls assembles the tool calls of one turn. Pieces belong together by id,
// then by index, then by position. Servers reuse an index for the next call, leave
// it out, repeat id and name with every piece or give no id at all, so neither
// alone tells where a call begins: a piece begins one if it has a name and what
// its id or index points to is another call, or a complete one.
type openAICalls struct{ all []*openAICall }

// openAICall is one call. Its fields beside those here are kept as they came.
type openAICall struct {
	index    int // noIndex where the server gives none
	id, name string
	args     []byte  // what stands between the quotes, not decoded
	call     *object // all other fields of the call
	function *object // all other fields of its function
	pieces   int     // how many it consists of so far
	named    int     // how many of them had its name
}

const noIndex = -1

// openAIPiece is one element of a delta's tool_calls.
type openAIPiece struct {
	openAICall
	position int  // within its delta
	alone    bool // in its delta
}

func (c *openAICalls) join(raw []byte, show func(Delta)) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	fresh := len(c.all)
	for i, element := range list {
		p, err := readPiece(element)
		if err != nil {
			return err
		}
		p.position, p.alone = i, len(list) == 1
		call := c.find(p, fresh)
		if call == nil {
			call = &openAICall{index: p.index, call: newObject(), function: newObject()}
			c.all = append(c.all, call)
		}
		named := call.name != ""
		if err := call.join(p); err != nil {
			return err
		}
		if !named && call.name != "" {
			show(Delta{Call: call.name})
		}
	}
	return nil
}

func readPiece(raw []byte) (*openAIPiece, error) {
	p := &openAIPiece{}
	p.index = noIndex
	call, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	var index *int
	if json.Unmarshal(call.raw("index"), &index) == nil && index != nil && *index >= 0 {
		p.index = *index
	}
	p.id = call.text("id")
	p.function = newObject()
	if !call.empty("function") {
		if p.function, err = parseObject(call.raw("function")); err != nil {
			return nil, err
		}
	}
	p.name = p.function.text("name")
	if args := p.function.values["arguments"]; args != nil {
		switch {
		case args.isText:
			p.args = args.text
		case string(args.raw) != "null": // an object where a text should be
			quoted := quote(string(args.append(nil)))
			p.args = quoted[1 : len(quoted)-1]
		}
	}
	p.call = call
	for _, name := range []string{"index", "id", "function", "type"} {
		p.call.remove(name)
	}
	p.function.remove("name")
	p.function.remove("arguments")
	return p, nil
}

// find returns the call that a piece continues, nil if it begins one. fresh is
// how many calls there were before its delta.
func (c *openAICalls) find(p *openAIPiece, fresh int) *openAICall {
	if p.id != "" {
		if call := c.last(func(o *openAICall) bool { return o.id == p.id }); call != nil {
			// Two calls with one id: the index tells them apart.
			if p.index != noIndex && call.index != noIndex && p.index != call.index && p.begins(call) {
				return c.byIndex(p)
			}
			if p.begins(call) && call.index == p.index {
				return nil
			}
			return call
		}
	}
	switch {
	case p.index != noIndex:
		return c.byIndex(p)
	case !p.alone:
		if p.position < fresh && !p.begins(c.all[p.position]) {
			return c.all[p.position]
		}
		return nil
	default:
		return p.unlessBegun(c.last(func(*openAICall) bool { return true }))
	}
}

func (c *openAICalls) byIndex(p *openAIPiece) *openAICall {
	return p.unlessBegun(c.last(func(o *openAICall) bool { return o.index == p.index }))
}

func (p *openAIPiece) unlessBegun(call *openAICall) *openAICall {
	if call == nil || p.begins(call) {
		return nil
	}
	return call
}

func (c *openAICalls) last(match func(*openAICall) bool) *openAICall {
	for _, call := range slices.Backward(c.all) {
		if match(call) {
			return call
		}
	}
	return nil
}

// begins reports whether the piece is the beginning of another call than that.
func (p *openAIPiece) begins(call *openAICall) bool {
	switch {
	case p.name == "" || call.name == "":
		return false
	case p.name != call.name, p.id != "" && call.id != "" && p.id != call.id:
		return true
	case !bytes.HasSuffix(call.args, []byte("}")) || !isObject(unquote(call.args)):
		return false // a server that repeats the name
	default: // the same tool once more, unless the server repeats the name and has no more to say
		return !isBlank(unquote(p.args)) || p.id == "" && call.pieces > 1 && call.named == 1
	}
}

func isObject(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "{") && json.Valid([]byte(s))
}

// join adds a piece to its call.
func (c *openAICall) join(p *openAIPiece) error {
	if c.id == "" {
		c.id = p.id
	}
	if c.name == "" {
		c.name = p.name
	}
	c.pieces++
	if p.name != "" {
		c.named++
	}
	c.args = append(c.args, p.args...)
	for _, name := range p.call.names {
		if err := c.call.join(name, p.call.raw(name)); err != nil {
			return err
		}
	}
	for _, name := range p.function.names {
		if err := c.function.join(name, p.function.raw(name)); err != nil {
			return err
		}
	}
	return nil
}

// list writes the calls in the order of their indexes, those without one last, in
// the order in which they came. cut says that the answer was cut off.
func (c *openAICalls) list(ids *minter, cut bool) [][]byte {
	calls := slices.Clone(c.all)
	slices.SortStableFunc(calls, func(a, b *openAICall) int { return a.order() - b.order() })
	var list [][]byte
	for i, call := range calls {
		list = append(list, call.bytes(ids, cut && i == len(calls)-1))
	}
	return list
}

func (c *openAICall) order() int {
	if c.index == noIndex {
		return 1 << 30
	}
	return c.index
}

func (c *openAICall) bytes(ids *minter, cut bool) []byte {
	f := newObject()
	f.add("name", quote(sendableName(c.name)))
	f.add("arguments", quotedArgs(c.args, cut))
	for _, n := range c.function.names {
		f.put(n, c.function.values[n])
	}
	o := newObject()
	o.add("id", quote(ids.id(c.id)))
	o.add("type", quote("function"))
	o.add("function", f.bytes())
	for _, n := range c.call.names {
		o.put(n, c.call.values[n])
	}
	return o.bytes()
}

// quotedArgs keeps the model's own spelling where it can be used.
func quotedArgs(text []byte, cut bool) []byte {
	s := unquote(text)
	if sendable := sendableArgs(s, cut); string(sendable) != strings.TrimSpace(s) {
		return quote(string(sendable))
	}
	return append(append([]byte{'"'}, text...), '"')
}
