package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// object is a JSON object that keeps the order of its fields and the bytes of
// their values. A string that arrives in pieces is joined without being decoded,
// so that escapes stay as they were sent and a surrogate pair may be cut in two.
type object struct {
	names  []string
	values map[string]*value
}

// value is a string (text is what stands between its quotes), a list, or
// anything else in raw.
type value struct {
	text   []byte
	isText bool
	list   []*value
	isList bool
	raw    []byte
	obj    *object // an element of a list to which more may be joined
}

func newObject() *object { return &object{values: make(map[string]*value)} }

// parseObject reads an object's fields.
func parseObject(raw []byte) (*object, error) {
	o := newObject()
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		if err := o.set(name.(string), v); err != nil { // a key is always a string
			return nil, err
		}
	}
	_, err = dec.Token()
	return o, err
}

// parseValue takes valid JSON apart as far as joining needs it.
func parseValue(raw []byte) (*value, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return nil, errors.New("no JSON value")
	case raw[0] == '"':
		return &value{isText: true, text: slices.Clone(raw[1 : len(raw)-1])}, nil
	case raw[0] == '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, err
		}
		v := &value{isList: true}
		for _, e := range elements {
			v.list = append(v.list, &value{raw: e})
		}
		return v, nil
	default:
		return &value{raw: slices.Clone(raw)}, nil
	}
}

func (o *object) put(name string, v *value) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = v
}

// set gives a field a value.
func (o *object) set(name string, raw []byte) error {
	v, err := parseValue(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.put(name, v)
	return nil
}

// add is set for bytes that this package made.
func (o *object) add(name string, raw []byte) { o.put(name, &value{raw: raw}) }

func (o *object) remove(name string) {
	delete(o.values, name)
	o.names = slices.DeleteFunc(o.names, func(n string) bool { return n == name })
}

// join adds a piece to a field: strings and lists grow, null adds nothing, and
// anything else takes the place of what was there.
func (o *object) join(name string, raw []byte) error {
	v, err := parseValue(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if string(v.raw) == "null" {
		return nil
	}
	old := o.values[name]
	switch {
	case old == nil:
		if !v.isList {
			o.put(name, v)
			return nil
		}
		old = &value{isList: true}
		o.put(name, old)
	case old.isText && v.isText:
		old.text = append(old.text, v.text...)
		return nil
	case old.isText && v.isList:
		old = old.asParts()
		o.put(name, old)
	case old.isList && v.isText:
		v = v.asParts()
	case !old.isList || !v.isList:
		o.put(name, v)
		return nil
	}
	for _, e := range v.list {
		if err := old.joinElement(e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// asParts is a string as a list: some servers change between the two.
func (v *value) asParts() *value {
	part := newObject()
	part.add("type", quote("text"))
	part.put("text", v)
	return &value{isList: true, list: []*value{{raw: part.bytes()}}}
}

// text is the decoded string in a field, "" if there is none.
func (o *object) text(name string) string {
	v := o.values[name]
	if v == nil || !v.isText {
		return ""
	}
	return unquote(v.text)
}

// raw is the bytes of a field's value, nil if there is none.
func (o *object) raw(name string) []byte {
	v := o.values[name]
	if v == nil {
		return nil
	}
	return v.append(nil)
}

func (o *object) empty(name string) bool {
	v := o.values[name]
	return v == nil || v.isText && len(v.text) == 0 || v.isList && len(v.list) == 0 || string(v.raw) == "null"
}

func (o *object) bytes() []byte { return o.append(nil) }

func (o *object) append(b []byte) []byte {
	b = append(b, '{')
	for i, name := range o.names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(name)...)
		b = append(b, ':')
		b = o.values[name].append(b)
	}
	return append(b, '}')
}

func (v *value) append(b []byte) []byte {
	switch {
	case v.isText:
		b = append(b, '"')
		b = append(b, v.text...)
		return append(b, '"')
	case v.isList:
		b = append(b, '[')
		for i, e := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.append(b)
		}
		return append(b, ']')
	case v.obj != nil:
		return v.obj.append(b)
	default:
		return append(b, v.raw...)
	}
}

// quote is s as JSON, without the escapes for HTML: they only cost tokens.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// unquote decodes what stands between a string's quotes.
func unquote(text []byte) string {
	quoted := make([]byte, 0, len(text)+2)
	quoted = append(append(append(quoted, '"'), text...), '"')
	var s string
	_ = json.Unmarshal(quoted, &s) // came out of valid JSON
	return s
}

// array joins values that are JSON already.
func array(elements [][]byte) []byte {
	b := append([]byte{'['}, bytes.Join(elements, []byte{','})...)
	return append(b, ']')
}
