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

// json hides secrets in JSON, in which they may be escaped.
func (h hider) json(raw json.RawMessage) json.RawMessage {
	for _, secret := range h.secrets {
		escaped, err := json.Marshal(secret)
		if err != nil {
			continue // a string has no such error
		}
		raw = bytes.ReplaceAll(raw, []byte(secret), []byte(hidden))
		raw = bytes.ReplaceAll(raw, escaped[1:len(escaped)-1], []byte(hidden))
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
