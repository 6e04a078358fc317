package llm

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// mapStrings puts another literal in the place of each string in JSON, quotes included.
func mapStrings(raw []byte, other func(literal []byte) []byte) []byte {
	var b bytes.Buffer
	for len(raw) > 0 {
		begin := bytes.IndexByte(raw, '"')
		if begin < 0 {
			break
		}
		end := begin + literal(raw[begin:])
		b.Write(raw[:begin])
		b.Write(other(raw[begin:end]))
		raw = raw[end:]
	}
	b.Write(raw)
	return b.Bytes()
}

// literal is the length of the string that JSON begins with.
func literal(raw []byte) int {
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// wellFormed is a message without half characters: the half of a surrogate pair, at
// which an answer was cut off, or bytes that are not UTF-8. A server refuses the whole
// conversation for one. All other bytes stay what they are.
func wellFormed(raw []byte) []byte {
	if utf8.Valid(raw) && !hasHalfPair(raw) {
		return raw
	}
	return mapStrings(raw, func(literal []byte) []byte {
		if utf8.Valid(literal) && !hasHalfPair(literal) {
			return literal
		}
		return quote(unquote(literal[1 : len(literal)-1]))
	})
}

// hasHalfPair reports whether an escape in JSON is half of a surrogate pair.
func hasHalfPair(raw []byte) bool {
	for i := 0; ; {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			return false
		}
		i += next
		first := escaped(raw[i:])
		switch {
		case !utf16.IsSurrogate(first):
			i = min(i+2, len(raw)) // the escaped character may be a backslash
		case utf16.DecodeRune(first, escaped(raw[min(i+6, len(raw)):])) == utf8.RuneError:
			return true
		default:
			i += 12
		}
	}
}

// escaped is the character of an escape with its number, 0 of anything else.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
