package tool

import (
	"bytes"
	"encoding/json"
)

// EncodeJSON writes JSON without escapes that only HTML needs: models and people read it.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func quote(s string) json.RawMessage {
	raw, err := EncodeJSON(s)
	if err != nil {
		return json.RawMessage(`""`) // a string has no such error
	}
	return raw
}

// decode reads JSON, numbers as they are written.
func decode(raw json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}
