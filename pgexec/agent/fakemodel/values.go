package fakemodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// duration is written as 1.5s or 200ms.
type duration time.Duration

// UnmarshalYAML reads the text form of a [time.Duration].
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration: want one such as 200ms or 1.5s", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// textual fits texts that contain its words, or that match its regular expression.
type textual struct {
	words  string
	regexp *regexp.Regexp
}

// UnmarshalYAML reads the words, or {regexp: …}.
func (t *textual) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		t.words = n.Value
		return nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[0].Value != "regexp" {
		return fmt.Errorf("line %d: want the words that the text contains, or {regexp: …}", n.Line)
	}
	re, err := regexp.Compile(n.Content[1].Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	t.regexp = re
	return nil
}

func (t *textual) fits(text string) bool {
	if t.regexp != nil {
		return t.regexp.MatchString(text)
	}
	return strings.Contains(text, t.words)
}

func (t *textual) String() string {
	if t.regexp != nil {
		return "match of " + t.regexp.String()
	}
	return strconv.Quote(t.words)
}

// interval is a number, a range 2-5, or 2- for 2 and more.
type interval struct{ from, to int }

var intervalForm = regexp.MustCompile(`^(\d{1,9})(-(\d{1,9})?)?$`)

// UnmarshalYAML reads one of the three forms.
func (i *interval) UnmarshalYAML(n *yaml.Node) error {
	m := intervalForm.FindStringSubmatch(n.Value)
	if m == nil {
		return fmt.Errorf("line %d: %q: want a number, a range such as 2-5, or 2- for 2 and more", n.Line, n.Value)
	}
	i.from, _ = strconv.Atoi(m[1]) // digits only, and few of them
	switch {
	case m[2] == "":
		i.to = i.from
	case m[3] == "":
		i.to = 1e9
	default:
		i.to, _ = strconv.Atoi(m[3])
	}
	if i.to < i.from {
		return fmt.Errorf("line %d: range %q is empty", n.Line, n.Value)
	}
	return nil
}

func (i *interval) fits(n int) bool { return i.from <= n && n <= i.to }

func (i *interval) String() string {
	switch {
	case i.to == i.from:
		return strconv.Itoa(i.from)
	case i.to == 1e9:
		return fmt.Sprintf("%d or more", i.from)
	}
	return fmt.Sprintf("%d to %d", i.from, i.to)
}

// callIndex is the index of a streamed call, as some servers get it wrong.
type callIndex struct {
	n       int
	missing bool
}

// UnmarshalYAML reads a number or the word missing.
func (i *callIndex) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "missing" {
		i.missing = true
		return nil
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: index %q: want a number, or missing", n.Line, n.Value)
	}
	i.n = v
	return nil
}

// arguments are a call's arguments: a mapping whose strings may be templates.
// It is kept as it was written, so that names keep their order.
type arguments struct{ node *yaml.Node }

// UnmarshalYAML keeps the mapping.
func (a *arguments) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: args must be a mapping; raw_args takes any text", n.Line)
	}
	a.node = n
	return nil
}

// json renders the arguments for a conversation.
func (a arguments) json(c *conversation) (string, error) {
	if a.node == nil {
		return "{}", nil
	}
	w := jsonWriter{conversation: c}
	if err := w.write(a.node); err != nil {
		return "", err
	}
	return w.out.String(), nil
}

// jsonWriter writes YAML as JSON, its texts rendered for a conversation.
type jsonWriter struct {
	conversation *conversation
	out          bytes.Buffer
}

func (w *jsonWriter) write(n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return w.list(n, "{}", ",:")
	case yaml.SequenceNode:
		return w.list(n, "[]", ",,")
	case yaml.AliasNode:
		return w.write(n.Alias)
	}
	var v any
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		if err := n.Decode(&v); err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
	case "!!merge":
		return fmt.Errorf("line %d: args cannot merge mappings", n.Line)
	default: // text, and what YAML would make a time
		text, err := w.conversation.render(n.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		v = text
	}
	raw, err := encode(v)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	w.out.Write(raw)
	return nil
}

// list writes the parts of a mapping or sequence between its brackets, the two separators taking turns.
func (w *jsonWriter) list(n *yaml.Node, brackets, separators string) error {
	w.out.WriteByte(brackets[0])
	for i, part := range n.Content {
		if i > 0 {
			w.out.WriteByte(separators[i%2])
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 && part.ShortTag() != "!!merge" {
			key := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: part.Value, Line: part.Line}
			if part.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a name in args must be text", part.Line)
			}
			part = &key
		}
		if err := w.write(part); err != nil {
			return err
		}
	}
	w.out.WriteByte(brackets[1])
	return nil
}

// arguments are the text of the call's arguments.
func (c *call) arguments(conv *conversation) (string, error) {
	if c.RawArgs != nil {
		return conv.render(*c.RawArgs)
	}
	return c.Args.json(conv)
}

// encode is JSON without the escapes that HTML would need.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		var unsupported *json.UnsupportedValueError
		if errors.As(err, &unsupported) {
			return nil, fmt.Errorf("%s has no form in JSON", unsupported.Str)
		}
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// mustEncode is encode of what this package made itself, which cannot fail.
func mustEncode(v any) []byte {
	raw, err := encode(v)
	if err != nil {
		panic(err)
	}
	return raw
}
