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

// clip cuts a text to so many bytes, at a character's end.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// shown gathers what the model sees of an output, up to a limit of text.
type shown struct {
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
func (s *shown) show(ctx context.Context, spec *Spec, raw json.RawMessage) (isError bool, err error) {
	known := false
	switch spec.Type {
	case definition.TypeHTTP, definition.TypeSQL, definition.TypeMCP:
		if known, isError, err = s.kept(ctx, raw); known || err != nil {
			return isError, err
		}
	}
	switch spec.Type {
	case definition.TypeHTTP:
		known = s.http(raw)
	case definition.TypeSQL:
		known = s.sql(raw)
	case definition.TypeMCP:
		known, isError, err = s.mcp(ctx, raw)
	case definition.TypeAgent:
		known = s.agent(raw)
	case definition.TypeKind:
		known, err = s.blob(ctx, raw)
	case definition.TypeSleep:
		s.note("(the time is over)")
		known = true
	}
	if !known && err == nil {
		s.text(plain(raw))
	}
	return isError, err
}
