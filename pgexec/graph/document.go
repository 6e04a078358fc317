package graph

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file read JSON that json.Valid has found good, which
// also bounds how deep it nests. They never decode and encode again: what a ref
// stands for goes through byte for byte, numbers beyond float64 and lone
// surrogates included.

// span is a part of a document.
type span struct{ from, to int }

// document is a JSON text in which values are looked up. The members of each
// object and array on the way are indexed once, so that many refs into one
// large output cost one pass and not one each.
type document struct {
	raw     []byte
	root    span               // the value, without the space around it
	indexed map[int]*container // by the position at which it begins
}

// container is an object (members) or an array (elements).
type container struct {
	members  map[string]span
	elements []span
}

func newDocument(raw []byte) *document {
	from := skipSpace(raw, 0)
	return &document{raw: raw, root: span{from, skipValue(raw, from)}}
}

// child finds a member or an element of the value at that place. missing says
// what is not there, there says what is.
func (d *document) child(at span, token string) (value span, missing, there string) {
	switch first := d.raw[at.from]; first {
	case '{':
		if value, ok := d.container(at).members[token]; ok {
			return value, "", ""
		}
		return span{}, strconv.Quote(cut(token)), ""
	case '[':
		elements := d.container(at).elements
		if i, ok := arrayIndex(token); ok && i < len(elements) {
			return elements[i], "", ""
		}
		return span{}, strconv.Quote(cut(token)), fmt.Sprintf("; that is an array of %d", len(elements))
	default:
		return span{}, strconv.Quote(cut(token)), "; that is " + scalarName(first)
	}
}

// arrayIndex reads an index as RFC 6901 has it: digits without a leading zero.
func arrayIndex(token string) (int, bool) {
	if token == "" || len(token) > 1 && token[0] == '0' || token[0] < '0' || token[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(token)
	return n, err == nil
}

func scalarName(first byte) string {
	switch first {
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func (d *document) container(at span) *container {
	if c := d.indexed[at.from]; c != nil {
		return c
	}
	c := &container{}
	if d.raw[at.from] == '{' {
		c.members = make(map[string]span)
	}
	for i := skipSpace(d.raw, at.from+1); i < at.to-1; {
		var key span
		if c.members != nil {
			key = span{i, skipString(d.raw, i)}
			i = skipSpace(d.raw, skipSpace(d.raw, key.to)+1)
		}
		value := span{i, skipValue(d.raw, i)}
		if c.members != nil {
			c.members[unquote(d.raw[key.from:key.to])] = value
		} else {
			c.elements = append(c.elements, value)
		}
		i = skipSpace(d.raw, value.to)
		if d.raw[i] == ',' {
			i = skipSpace(d.raw, i+1)
		}
	}
	if d.indexed == nil {
		d.indexed = make(map[int]*container)
	}
	d.indexed[at.from] = c
	return c
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the position behind the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the position behind the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		default:
			if depth == 0 {
				return skipScalar(b, i)
			}
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// skipScalar returns the position behind the number or the word that begins at i.
func skipScalar(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case ' ', '\n', '\r', '\t', ',', ']', '}':
			return i
		}
	}
	return i
}

// unquoteIs reports whether a string literal stands for want.
func unquoteIs(literal []byte, want string) bool {
	if len(literal) > 6*len(want)+2 {
		return false
	}
	return unquote(literal) == want
}

// unquote decodes a string literal. Lone surrogates keep their identity: they
// become the three bytes that UTF-8 would have for them, were they allowed.
func unquote(literal []byte) string {
	s := literal[1 : len(literal)-1]
	plain := 0
	for plain < len(s) && s[plain] != '\\' {
		plain++
	}
	if plain == len(s) {
		return string(s)
	}
	out := append(make([]byte, 0, len(s)), s[:plain]...)
	for i := plain; i < len(s); {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		if s[i+1] != 'u' {
			out = append(out, unescape(s[i+1]))
			i += 2
			continue
		}
		r := hex4(s[i+2:])
		i += 6
		if utf16.IsSurrogate(r) && i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(s[i+2:])); pair != utf8.RuneError {
				r = pair
				i += 6
			}
		}
		out = appendRune(out, r)
	}
	return string(out)
}

func appendRune(out []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(out, r)
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return c // '"', '\\' and '/'
	}
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= 'a':
			c = c - 'a' + 10
		case c >= 'A':
			c = c - 'A' + 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}
