package kinds

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// appendValue appends the text form of a value as JSON: what to_jsonb makes of
// it, except that json keeps its bytes and that rows of composite types and
// ranges are the text PostgreSQL shows.
func (t typeTable) appendValue(b *bytes.Buffer, oid uint32, text []byte) error {
	known, ok := t[oid]
	if ok && known.elem != 0 {
		p := arrayParser{types: t, elem: known.elem, delim: known.delim, text: text}
		return p.appendArray(b)
	}
	switch t.base(oid) {
	case pgtype.BoolOID:
		if string(text) == "t" {
			b.WriteString("true")
		} else {
			b.WriteString("false")
		}
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		appendNumber(b, text)
	case pgtype.JSONOID, pgtype.JSONBOID:
		if utf8.Valid(text) && json.Valid(text) {
			b.Write(text)
		} else {
			appendJSONString(b, string(text))
		}
	case pgtype.TimestampOID, pgtype.TimestamptzOID:
		appendJSONString(b, isoTime(text))
	default:
		appendJSONString(b, string(text))
	}
	return nil
}

// appendNumber keeps every digit. NaN and Infinity, which JSON has not, are strings.
func appendNumber(b *bytes.Buffer, text []byte) {
	if digits := bytes.TrimPrefix(text, []byte("-")); len(digits) > 0 && '0' <= digits[0] && digits[0] <= '9' {
		b.Write(text)
		return
	}
	appendJSONString(b, string(text))
}

// isoTime puts T between date and time and completes an offset of whole hours,
// as to_jsonb does.
func isoTime(text []byte) string {
	at := bytes.IndexByte(text, ' ')
	if at < 0 {
		return string(text) // infinity
	}
	day, rest := string(text[:at]), string(text[at+1:])
	clock, era := rest, ""
	if i := bytes.IndexByte([]byte(rest), ' '); i >= 0 {
		clock, era = rest[:i], rest[i:]
	}
	if n := len(clock); n > 3 && (clock[n-3] == '+' || clock[n-3] == '-') {
		clock += ":00"
	}
	return day + "T" + clock + era
}

// arrayParser reads the text form of an array.
type arrayParser struct {
	types typeTable
	elem  uint32
	delim byte
	text  []byte
	at    int
}

var errArray = errors.New("read array: not the text form of an array")

func (p *arrayParser) appendArray(b *bytes.Buffer) error {
	if len(p.text) > 0 && p.text[0] == '[' { // bounds that do not begin at 1
		p.at = bytes.IndexByte(p.text, '=') + 1
	}
	if err := p.appendLevel(b); err != nil {
		return err
	}
	if p.at != len(p.text) {
		return errArray
	}
	return nil
}

func (p *arrayParser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// appendLevel reads one {…}.
func (p *arrayParser) appendLevel(b *bytes.Buffer) error {
	if p.peek() != '{' {
		return errArray
	}
	p.at++
	b.WriteByte('[')
	for first := true; p.peek() != '}'; first = false {
		if !first {
			if p.peek() != p.delim {
				return errArray
			}
			p.at++
			b.WriteByte(',')
		}
		if err := p.appendElement(b); err != nil {
			return err
		}
	}
	p.at++
	b.WriteByte(']')
	return nil
}

func (p *arrayParser) appendElement(b *bytes.Buffer) error {
	switch p.peek() {
	case '{':
		return p.appendLevel(b)
	case '"':
		text, err := p.quoted()
		if err != nil {
			return err
		}
		return p.types.appendValue(b, p.elem, text)
	}
	from := p.at
	for p.at < len(p.text) && p.text[p.at] != p.delim && p.text[p.at] != '}' {
		p.at++
	}
	if p.at == from {
		return errArray
	}
	text := p.text[from:p.at]
	if bytes.EqualFold(text, []byte("null")) {
		b.WriteString("null")
		return nil
	}
	return p.types.appendValue(b, p.elem, text)
}

func (p *arrayParser) quoted() ([]byte, error) {
	var text []byte
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return text, nil
		case c == '\\' && p.at+1 < len(p.text):
			p.at++
			text = append(text, p.text[p.at])
		default:
			text = append(text, c)
		}
	}
	return nil, errArray
}
