package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// sqlParams makes of JSON values the text form of the types that the statement wants.
func (t typeTable) sqlParams(params []json.RawMessage, oids []uint32) ([][]byte, error) {
	values := make([][]byte, len(params))
	for i, raw := range params {
		value, err := t.sqlParam(bytes.TrimSpace(raw), oids[i])
		if err != nil {
			return nil, badInput("params: $%d: %w", i+1, err)
		}
		values[i] = value
	}
	return values, nil
}

// sqlParam returns the text form of one value: nil for null, a string's text, a
// list for an array type as its elements, and all else, also what goes to json
// and jsonb, as the JSON it is.
func (t typeTable) sqlParam(raw []byte, oid uint32) ([]byte, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	if t.isJSON(oid) {
		return raw, nil
	}
	if text, ok := jsonString(raw); ok {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, fmt.Errorf("PostgreSQL knows no character U+0000")
		}
		return []byte(text), nil
	}
	if known := t[oid]; known.elem != 0 && raw[0] == '[' {
		var b bytes.Buffer
		err := t.appendArrayText(&b, known, raw)
		return b.Bytes(), err
	}
	return raw, nil
}

func (t typeTable) isJSON(oid uint32) bool {
	base := t.base(oid)
	return base == pgtype.JSONOID || base == pgtype.JSONBOID
}

var arrayQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// appendArrayText writes a list as an array; lists in it are further
// dimensions, unless the elements are JSON themselves.
func (t typeTable) appendArrayText(b *bytes.Buffer, array sqlType, raw []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	b.WriteByte('{')
	for i, item := range list {
		if i > 0 {
			b.WriteByte(array.delim)
		}
		item = bytes.TrimSpace(item)
		if item[0] == '[' && !t.isJSON(array.elem) {
			if err := t.appendArrayText(b, array, item); err != nil {
				return err
			}
			continue
		}
		text, err := t.sqlParam(item, array.elem)
		if err != nil {
			return err
		}
		if text == nil {
			b.WriteString("NULL")
			continue
		}
		b.WriteByte('"')
		b.WriteString(arrayQuoter.Replace(string(text)))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return nil
}
