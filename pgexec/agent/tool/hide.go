package tool

import (
	"encoding/json"
	"strings"

	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// hider removes a tool's secrets from what a service says, which may well repeat
// them: results and errors are recorded, and the model reads them.
type hider struct{ secrets []string }

// minSecret bounds, in bytes, what is hidden. Shorter values would tear holes into any text.
const minSecret = 6

const hidden = "(hidden)"

func newHider(spec *Spec, resolved map[string]string) hider {
	var h hider
	for _, secret := range definition.SecretsIn(spec.Headers, resolved) {
		if len(secret) >= minSecret {
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
	return llm.EditStrings(raw, h.text)
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
