package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// fields are the members of one JSON object of a node's input. Names are
// matched exactly, an unknown one is an error, and null means absent.
type fields struct {
	path    string
	members map[string]json.RawMessage
}

// objectFields takes raw as an object that has no other members than the known ones.
func objectFields(path string, raw json.RawMessage, known ...string) (fields, error) {
	f := fields{path: path}
	if err := unmarshal(raw, &f.members); err != nil || f.members == nil {
		return f, badInput("%s: want an object, got %s", path, jsonType(raw))
	}
	var unknown []string
	for name, value := range f.members {
		switch {
		case !slices.Contains(known, name):
			unknown = append(unknown, fmt.Sprintf("%q", name))
		case string(bytes.TrimSpace(value)) == "null":
			delete(f.members, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return f, badInput("%s: unknown field %s; the fields are %s",
			path, strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	return f, nil
}

// at names a member in an error.
func (f fields) at(name string) string {
	if f.path == inputPath {
		return name
	}
	return f.path + "." + name
}

func (f fields) has(name string) bool {
	_, ok := f.members[name]
	return ok
}

func (f fields) wrongType(name, want string) error {
	return badInput("%s: want %s, got %s", f.at(name), want, jsonType(f.members[name]))
}

// text returns a string member, "" when it is absent.
func (f fields) text(name string) (string, error) {
	raw, ok := f.members[name]
	if !ok {
		return "", nil
	}
	s, ok := jsonString(raw)
	if !ok {
		return "", f.wrongType(name, "a string")
	}
	return s, nil
}

// requiredText returns a string member that must be there and not be empty.
func (f fields) requiredText(name string) (string, error) {
	s, err := f.text(name)
	if err == nil && s == "" {
		return "", badInput("%s is missing", f.at(name))
	}
	return s, err
}

// flag returns a boolean member, or absent when it is not there.
func (f fields) flag(name string, absent bool) (bool, error) {
	raw, ok := f.members[name]
	if !ok {
		return absent, nil
	}
	var b bool
	if err := unmarshal(raw, &b); err != nil {
		return false, f.wrongType(name, "true or false")
	}
	return b, nil
}

// list returns the elements of a list member, none when it is absent.
func (f fields) list(name string) ([]json.RawMessage, error) {
	raw, ok := f.members[name]
	if !ok {
		return nil, nil
	}
	var list []json.RawMessage
	if err := unmarshal(raw, &list); err != nil {
		return nil, f.wrongType(name, "a list")
	}
	return list, nil
}

// count returns a whole number from 1 to most, or absent when it is not there.
func (f fields) count(name string, absent, most int) (int, error) {
	raw, ok := f.members[name]
	if !ok {
		return absent, nil
	}
	var n int
	if err := unmarshal(raw, &n); err != nil {
		return 0, f.wrongType(name, "a whole number")
	}
	if n < 1 || n > most {
		return 0, badInput("%s: %d is not between 1 and %d", f.at(name), n, most)
	}
	return n, nil
}

// duration returns a time given as a number of seconds or as text such as
// "30s" or "1m30s", or absent when it is not there.
func (f fields) duration(name string, absent, most time.Duration) (time.Duration, error) {
	raw, ok := f.members[name]
	if !ok {
		return absent, nil
	}
	var d time.Duration
	var seconds float64
	if text, isText := jsonString(raw); isText {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			return 0, badInput(`%s: %q is neither a number of seconds nor a duration such as "30s" or "1m30s"`, f.at(name), text)
		}
	} else if err := unmarshal(raw, &seconds); err != nil {
		return 0, f.wrongType(name, `a number of seconds or a duration such as "30s"`)
	} else {
		d = time.Duration(math.Min(seconds*float64(time.Second), math.MaxInt64/2))
	}
	if d < time.Millisecond {
		return 0, badInput("%s: %s is too short; the least is 1ms", f.at(name), d)
	}
	if d > most {
		return 0, badInput("%s: %s is over the limit of %s", f.at(name), d, most)
	}
	return d, nil
}

// unmarshal is json.Unmarshal except that absent bytes are null.
func unmarshal(raw json.RawMessage, dst any) error {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	return json.Unmarshal(raw, dst)
}

// jsonString returns the text of raw if it is a JSON string.
func jsonString(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

// jsonType names the type of a JSON value for an error.
func jsonType(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "the number " + clip(string(raw), 40)
	}
}

// clip shortens text to at most n bytes, at a character's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// appendJSONString appends s as a JSON string. What is not UTF-8 becomes
// U+FFFD; nothing else is changed, so that <, > and & stay readable in psql.
func appendJSONString(b *bytes.Buffer, s string) {
	if isPlain(s) {
		b.WriteByte('"')
		b.WriteString(s)
		b.WriteByte('"')
		return
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	// A string cannot fail to encode, nor a bytes.Buffer to take it.
	_ = enc.Encode(s)
	b.Truncate(b.Len() - 1) // Encode ends with a newline
}

// isPlain reports whether s needs no escapes.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}
