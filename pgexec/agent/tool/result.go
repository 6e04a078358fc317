package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// Result is what the model sees of a call, the kth (from 1) of a turn. There is one for
// every call (C46): of one that could not be made, was rejected, or failed it says so.
// An error is not about the call but about reading the log, or a mistake of the caller.
func Result(ctx context.Context, n *pgexec.Node, specs []Spec, ancestors map[pgexec.NodeID]*pgexec.Ancestor, turn, k int, call llm.Call) (llm.Message, error) {
	node, err := last(ancestors, turn, k)
	if err != nil {
		return llm.Message{}, err
	}
	spec := find(specs, call.Name)
	if node == nil || spec == nil {
		words := refusal(specs, &call)
		if words == "" {
			return llm.Message{}, pgexec.Permanent(fmt.Errorf("there is no node %s", callID(turn, k)))
		}
		return failure(&call, words, nil), nil
	}
	approval := ancestors[approvalID(turn, k)]
	switch node.Status() {
	case pgexec.StatusSkipped:
		return failure(&call, notApproved(approval), spec), nil
	case pgexec.StatusFailed:
		return failure(&call, node.Err().Error(), spec), nil
	}
	raw, err := node.RawOutput()
	if err != nil {
		return llm.Message{}, err
	}
	s := &shown{ctx: ctx, n: n, node: node.ID(), left: maxOutput(spec)}
	if err := s.edited(approval, &call); err != nil {
		return llm.Message{}, err
	}
	isError, err := s.show(spec, raw)
	if err != nil {
		return llm.Message{}, err
	}
	return llm.Message{Role: llm.RoleTool, CallID: call.ID, Name: call.Name, IsError: isError, Parts: s.end()}, nil
}

// Open returns the nodes that calls of a turn still wait for, of k calls: those in
// which an MCP server's request for input is answered and the call goes on. A turn
// that comes after them sees results; before, [Result] says that there is none.
func Open(ancestors map[pgexec.NodeID]*pgexec.Ancestor, turn, calls int) ([]pgexec.NodeRef, error) {
	var open []pgexec.NodeRef
	for k := 1; k <= calls; k++ {
		node, err := last(ancestors, turn, k)
		if err != nil {
			return nil, err
		}
		next, err := goesOn(node)
		if err != nil {
			return nil, err
		}
		if next != "" {
			open = append(open, pgexec.Ref(next))
		}
	}
	return open, nil
}

// last is the node that ends a call as far as it has come; nil if it has none.
func last(ancestors map[pgexec.NodeID]*pgexec.Ancestor, turn, k int) (*pgexec.Ancestor, error) {
	node := ancestors[callID(turn, k)]
	for {
		next, err := goesOn(node)
		if err != nil || next == "" || ancestors[next] == nil {
			return node, err
		}
		node = ancestors[next]
	}
}

// goesOn is the node in which a call goes on when its input is there, "" if it has ended.
func goesOn(node *pgexec.Ancestor) (pgexec.NodeID, error) {
	if node == nil || node.Kind() != kindMCP || node.Status() != pgexec.StatusSucceeded {
		return "", nil
	}
	raw, err := node.RawOutput()
	if err != nil {
		return "", err
	}
	var out mcpOutput
	if json.Unmarshal(raw, &out) != nil || out.Needs == nil {
		return "", nil // a person said what it is
	}
	return out.Needs.Call, nil
}

// notApproved says why a call was skipped.
func notApproved(approval *pgexec.Ancestor) string {
	if approval == nil || approval.Err() == nil {
		return "not run: a node before it did not succeed"
	}
	words := approval.Err().Error()
	if reason, ok := strings.CutPrefix(words, "rejected"); ok {
		return "not run: a person rejected this call" + reason
	}
	return "not run: it was not approved: " + words
}

// failure is the result of a call that was not made or brought nothing.
func failure(call *llm.Call, words string, spec *Spec) llm.Message {
	return llm.Message{
		Role: llm.RoleTool, CallID: call.ID, Name: call.Name, IsError: true,
		Parts: []llm.Part{{Text: "error: " + clip(words, maxOutput(spec))}},
	}
}

// defaultMaxOutput is that of tools whose definition cannot say it, in bytes.
const defaultMaxOutput = 16 << 10

func maxOutput(spec *Spec) int {
	if spec == nil || spec.MaxOutput == 0 {
		return defaultMaxOutput
	}
	return spec.MaxOutput
}

// clip cuts a text to so many bytes, at a character's end.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// shown gathers what the model sees of an output, up to a limit of text.
type shown struct {
	ctx   context.Context // of the one call of Result
	n     *pgexec.Node
	node  pgexec.NodeID
	parts []llm.Part
	// left is how many more bytes of text the model sees; seen and all, of how many bytes it saw how many.
	left, seen, all int
}

func (s *shown) text(text string) {
	s.all += len(text)
	if text = clip(text, s.left); text == "" {
		return
	}
	s.left -= len(text)
	s.seen += len(text)
	if s.seen < s.all {
		s.left = 0 // what comes after a cut is not shown either
	}
	s.parts = append(s.parts, llm.Part{Text: text})
}

// note adds a text of the runtime's own, which no limit cuts.
func (s *shown) note(format string, args ...any) {
	s.parts = append(s.parts, llm.Part{Text: fmt.Sprintf(format, args...)})
}

// end adds what was cut (C52).
func (s *shown) end() []llm.Part {
	if s.seen < s.all {
		s.note("[cut: %d of %d bytes are shown; the whole is the output of node %s]", s.seen, s.all, s.node)
	}
	if len(s.parts) == 0 {
		s.note("(no output)")
	}
	return s.parts
}

// maxImage bounds, in bytes, an image that the model is shown: providers refuse larger ones, in every later turn too.
const maxImage = 5 << 20

// imageTypes are what providers take.
var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

func (s *shown) image(mediaType string, data []byte) {
	switch {
	case !imageTypes[mediaType]:
		s.note("[%d bytes of %s are not shown; they are in the output of node %s]", len(data), orUnknown(mediaType), s.node)
	case len(data) == 0 || len(data) > maxImage:
		s.note("[an image of %d bytes is not shown, %d is the most; it is in the output of node %s]", len(data), maxImage, s.node)
	default:
		s.parts = append(s.parts, llm.Part{Image: &llm.Image{MediaType: mediaType, Data: data}})
	}
}

func orUnknown(mediaType string) string {
	if mediaType == "" {
		return "an unknown type"
	}
	return clip(mediaType, 100)
}

// edited tells the model that a person changed what it asked for.
func (s *shown) edited(approval *pgexec.Ancestor, call *llm.Call) error {
	if approval == nil || approval.Status() != pgexec.StatusSucceeded {
		return nil
	}
	raw, err := approval.RawOutput()
	if err != nil {
		return err
	}
	var approved struct {
		Args json.RawMessage `json:"args"`
	}
	if err := json.Unmarshal(raw, &approved); err != nil {
		return err
	}
	if !same(approved.Args, call.Args) {
		s.note("[a person changed the arguments of this call to %s]", clip(string(approved.Args), defaultMaxOutput))
	}
	return nil
}

// same compares JSON, whatever its blanks and the order of its fields.
func same(a, b json.RawMessage) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// show shows the output of a call, and reports whether it is a failure of the
// tool. An output that is not what the tool makes is what a person said it is.
func (s *shown) show(spec *Spec, raw json.RawMessage) (isError bool, err error) {
	known := false
	switch spec.Type {
	case definition.TypeHTTP:
		known = s.http(raw)
	case definition.TypeSQL:
		known = s.sql(raw)
	case definition.TypeMCP:
		known, isError, err = s.mcp(raw)
	case definition.TypeAgent:
		known = s.agent(raw)
	case definition.TypeKind:
		known, err = s.blob(raw)
	case definition.TypeSleep:
		s.note("(the time is over)")
		known = true
	}
	if !known && err == nil {
		s.text(plain(raw))
	}
	return isError, err
}
