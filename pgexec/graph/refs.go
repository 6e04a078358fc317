package graph

import (
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// MaxRefBytes bounds the text of a ref, and with it how deep a pointer goes.
	MaxRefBytes = 1024
	// MaxResolvedBytes bounds what Resolve returns: a short template can name a
	// large output many times. An output may be larger: it can be taken in parts.
	MaxResolvedBytes = 16 << 20
)

// Ref stands for a value in the output of a node. In a template it is an object
// whose only member is {"$ref": "<node id>#<pointer>"}; an object that has other
// members as well is ordinary data.
type Ref struct {
	NodeID NodeID
	// Pointer is a JSON pointer (RFC 6901); empty for the whole output.
	Pointer string
}

// String returns the ref as a template has it.
func (r Ref) String() string { return string(r.NodeID) + "#" + r.Pointer }

// RefError says what is wrong with a ref or with what it stands for.
type RefError struct {
	// Ref is the text of the ref.
	Ref string
	// Fault says what is wrong or missing.
	Fault string
}

// Error names the ref and the fault.
func (e *RefError) Error() string { return fmt.Sprintf("ref %s: %s", quoteID(e.Ref), e.Fault) }

// ParseRef reads "<node id>#<pointer>". The error is a *RefError.
func ParseRef(text string) (Ref, error) {
	if len(text) > MaxRefBytes {
		return Ref{}, &RefError{Ref: text, Fault: fmt.Sprintf("longer than %d bytes", MaxRefBytes)}
	}
	id, pointer, ok := strings.Cut(text, "#")
	if !ok {
		return Ref{}, &RefError{Ref: text, Fault: "no '#' between the node id and the JSON pointer"}
	}
	if fault := checkName("the node id", id, MaxIDBytes); fault != "" {
		return Ref{}, &RefError{Ref: text, Fault: fault}
	}
	if pointer != "" && pointer[0] != '/' {
		return Ref{}, &RefError{Ref: text, Fault: "the JSON pointer does not begin with '/'"}
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && (i+1 == len(pointer) || pointer[i+1] != '0' && pointer[i+1] != '1') {
			return Ref{}, &RefError{Ref: text, Fault: "'~' in a JSON pointer must be written ~0 (and '/' ~1)"}
		}
	}
	return Ref{NodeID: NodeID(id), Pointer: pointer}, nil
}

// Refs lists the refs of a template in the order they stand in it, repeated
// ones included. The error names the first fault: the template is not JSON, or
// a *RefError.
func Refs(template []byte) ([]Ref, error) {
	var refs []Ref
	err := scanRefs(template, func(ref Ref, _ span) error {
		refs = append(refs, ref)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// Resolve puts the values that refs stand for in their place. lookup returns
// the output of a node as JSON. All other bytes of the template, and all bytes
// of the values, stay as they are; a template without refs is returned itself.
// If an object names a member twice, the last one counts.
func Resolve(template []byte, lookup func(NodeID) ([]byte, bool)) ([]byte, error) {
	outputs := make(map[NodeID]*document)
	var out []byte
	copied := 0
	err := scanRefs(template, func(ref Ref, at span) error {
		doc := outputs[ref.NodeID]
		if doc == nil {
			raw, ok := lookup(ref.NodeID)
			if !ok {
				return ref.fault("%s has no output", ref.NodeID)
			}
			if !json.Valid(raw) {
				return ref.fault("the output of %s is not JSON", ref.NodeID)
			}
			doc = newDocument(raw)
			outputs[ref.NodeID] = doc
		}
		value, err := ref.find(doc)
		if err != nil {
			return err
		}
		if len(out)+at.from-copied+len(value)+len(template)-at.to > MaxResolvedBytes {
			return ref.fault("with it the input is larger than %d bytes", MaxResolvedBytes)
		}
		out = append(append(out, template[copied:at.from]...), value...)
		copied = at.to
		return nil
	})
	if err != nil {
		return nil, err
	}
	if copied == 0 {
		return template, nil
	}
	return append(out, template[copied:]...), nil
}

// At returns the value that a JSON pointer (RFC 6901) leads to in a document;
// nil where it leads nowhere, or where the document is not JSON.
func At(doc []byte, pointer string) []byte {
	if !json.Valid(doc) {
		return nil
	}
	value, err := Ref{Pointer: pointer}.find(newDocument(doc))
	if err != nil {
		return nil
	}
	return value
}

func (r Ref) fault(format string, args ...any) error {
	return &RefError{Ref: r.String(), Fault: fmt.Sprintf(format, args...)}
}

// find follows the pointer into the output of the node.
func (r Ref) find(doc *document) ([]byte, error) {
	if r.Pointer == "" {
		return doc.raw, nil
	}
	at := doc.root
	for rest := r.Pointer; rest != ""; {
		seen := r.Pointer[:len(r.Pointer)-len(rest)]
		token := rest[1:]
		if i := strings.IndexByte(token, '/'); i >= 0 {
			token = token[:i]
		}
		rest = rest[1+len(token):]
		value, missing, there := doc.child(at, unescapeToken(token))
		if missing != "" {
			if seen != "" {
				missing += " in " + cut(seen)
			}
			return nil, r.fault("output of %s has no %s%s", r.NodeID, missing, there)
		}
		at = value
	}
	return doc.raw[at.from:at.to], nil
}

var tokenUnescaper = strings.NewReplacer("~1", "/", "~0", "~")

func unescapeToken(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return tokenUnescaper.Replace(token)
}

// scanRefs calls fn for each ref of the template with the place of its object.
func scanRefs(template []byte, fn func(Ref, span) error) error {
	if !json.Valid(template) {
		var raw json.RawMessage // only to learn what is wrong
		return fmt.Errorf("parse template: %w", json.Unmarshal(template, &raw))
	}
	for i := 0; i < len(template); {
		switch template[i] {
		case '"':
			i = skipString(template, i)
		case '{':
			value, end, ok := refObject(template, i)
			if !ok {
				i++
				continue
			}
			if template[value.from] != '"' {
				return &RefError{Ref: cut(string(template[value.from:value.to])), Fault: "not a string"}
			}
			ref, err := ParseRef(unquote(template[value.from:value.to]))
			if err != nil {
				return err
			}
			if err := fn(ref, span{i, end}); err != nil {
				return err
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// refObject looks at the object that begins at i: is "$ref" its only member?
func refObject(b []byte, i int) (value span, end int, ok bool) {
	from := skipSpace(b, i+1)
	if b[from] != '"' {
		return span{}, 0, false
	}
	to := skipString(b, from)
	if unquoteIs(b[from:to], "$ref") {
		value.from = skipSpace(b, skipSpace(b, to)+1)
		value.to = skipValue(b, value.from)
		end = skipSpace(b, value.to)
		return value, end + 1, b[end] == '}'
	}
	return span{}, 0, false
}

// cut shortens text that goes into a message.
func cut(text string) string {
	const most = 80
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
