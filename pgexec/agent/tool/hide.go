package tool

import (
	"bytes"
	"encoding/json"
	"strings"
)

// hider removes a tool's secrets from what a service says, which may well repeat
// them: results and errors are recorded, and the model reads them.
type hider struct{ secrets []string }

// minSecret bounds, in bytes, what is hidden. Shorter values would tear holes into any text.
const minSecret = 6

const hidden = "(hidden)"

func newHider(spec *Spec, resolved map[string]string) hider {
	var h hider
	for name, header := range spec.Headers {
		if secret := strings.TrimPrefix(resolved[name], header.Prefix); header.Secret != nil && len(secret) >= minSecret {
			h.secrets = append(h.secrets, secret)
		}
	}
	return h
}

func (h hider) text(s string) string {
	for _, secret := range h.secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// json hides secrets in the strings of JSON, however they are escaped. It stays JSON.
func (h hider) json(raw json.RawMessage) json.RawMessage {
	if len(h.secrets) == 0 {
		return raw
	}
	var b bytes.Buffer
	for len(raw) > 0 {
		begin := bytes.IndexByte(raw, '"')
		if begin < 0 {
			break
		}
		end := begin + literal(raw[begin:])
		b.Write(raw[:begin])
		b.Write(h.literal(raw[begin:end]))
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

func (h hider) literal(raw json.RawMessage) json.RawMessage {
	s := text(raw)
	if clean := h.text(s); clean != s {
		return quote(clean)
	}
	return raw
}

// err hides secrets in an error. What it is marked with stays.
func (h hider) err(err error) error {
	if err == nil || h.text(err.Error()) == err.Error() {
		return err
	}
	return &hiddenError{h.text(err.Error()), err}
}

// hiddenError says what another error says, without secrets.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
