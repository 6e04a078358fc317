package llm

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Arguments that cannot be used cannot be sent back either: one format demands an
// object, and servers that speak the other parse what should be one. So the
// message carries them as the text they are, in an object of these two fields, and
// the model sees what it wrote and what was wrong with it.
const (
	unusableArgs   = "__unusable_arguments"
	unusableReason = "__reason"
)

// maxExcerpt bounds, in bytes, what is quoted of a faulty text.
const maxExcerpt = 200

// checkArgs returns the arguments of a call, or says why they are none.
// A model that has nothing to say about a call without parameters sends nothing.
func checkArgs(text string) (args json.RawMessage, fault string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return json.RawMessage("{}"), ""
	}
	var any json.RawMessage
	if err := json.Unmarshal([]byte(text), &any); err != nil {
		return nil, fmt.Sprintf("the arguments are not valid JSON (%v): %s; call again with a JSON object", err, excerpt(text))
	}
	fields, err := parseObject([]byte(text))
	if err != nil {
		return nil, fmt.Sprintf("the arguments are JSON but no object: %s; call again with a JSON object", excerpt(text))
	}
	if len(fields.names) == 2 && fields.values[unusableArgs] != nil && !fields.empty(unusableReason) {
		return nil, fields.text(unusableReason)
	}
	return json.RawMessage(text), ""
}

// cutArgs is the fault of a call that the end of the answer cut in two.
func cutArgs(text string) string {
	return fmt.Sprintf("the answer was cut off in the middle of this call, after %d bytes of its arguments: %q; call again with shorter arguments",
		len(text), excerpt(text))
}

// sendableArgs is what stands for arguments in a message.
func sendableArgs(text string, cut bool) json.RawMessage {
	args, fault := checkArgs(text)
	if cut && (fault != "" || strings.TrimSpace(text) == "") {
		fault = cutArgs(text)
	}
	if fault == "" {
		return args
	}
	o := newObject()
	o.add(unusableArgs, quote(text))
	o.add(unusableReason, quote(fault))
	return o.bytes()
}

// excerpt is the head of a text, whole characters only.
func excerpt(s string) string {
	if len(s) <= maxExcerpt {
		return s
	}
	return strings.ToValidUTF8(s[:maxExcerpt], "") + "…"
}

// minter gives calls ids that are unique in the conversation, the same ones
// whenever the same turn is assembled.
type minter struct {
	turn int
	used map[string]bool
	n    int
}

func newMinter(messages []Message) *minter {
	m := &minter{turn: len(messages), used: make(map[string]bool)}
	for _, msg := range messages {
		if msg.Role == RoleTool {
			m.used[msg.CallID] = true
		}
	}
	return m
}

// id returns the provider's id if it can be used, or another.
func (m *minter) id(given string) string {
	m.n++
	id := given
	for k := 0; id == "" || m.used[id]; k++ {
		id = fmt.Sprintf("call_%d_%d", m.turn, m.n+1000*k)
	}
	m.used[id] = true
	return id
}

// missingName stands for the name of a tool that a model called without naming it.
const missingName = "unnamed_tool"

// maxName is how long the name of a tool can be.
const maxName = 64

// sendableName is the name of a tool as it can be sent back: providers refuse the
// whole conversation for a name with other characters, which a model may well make
// up ("functions.search").
func sendableName(name string) string {
	if name == "" {
		return missingName
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, name)
	return name[:min(len(name), maxName)]
}

// newCall reads what a message says about a call.
func newCall(id, name, args string) Call {
	c := Call{ID: id, Name: name}
	c.Args, c.Fault = checkArgs(args)
	if name == missingName {
		c.Args, c.Fault = nil, "the call does not name a tool; call again with the name of one"
	}
	return c
}

// argsToSend is the arguments in a message that nobody else wrote.
func (c *Call) argsToSend() json.RawMessage {
	if len(c.Args) > 0 {
		return c.Args
	}
	o := newObject()
	o.add(unusableArgs, quote("(unknown)"))
	o.add(unusableReason, quote(c.Fault))
	return o.bytes()
}

func checkRole(r Role) error {
	if r != RoleAssistant {
		return fmt.Errorf("role is %q, must be %q", r, RoleAssistant)
	}
	return nil
}
