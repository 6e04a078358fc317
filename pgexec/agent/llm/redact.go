package llm

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// keyShaped is what a key looks like, also where its middle is hidden by stars.
var keyShaped = regexp.MustCompile(`\b(sk|gsk|xai|key)-[A-Za-z0-9*_-]{8,}`)

const hidden = "[redacted]"

// redactor hides secrets from what is shown and recorded: of errors the key, the
// values of headers, and what looks like a key; of answers the key and what else
// is known to be a secret.
type redactor struct{ secrets, known []string }

// minSecret bounds, in bytes, what is hidden: a header such as "1" is no secret,
// and hiding it would make texts unreadable.
const minSecret = 6

func newRedactor(c *Config) redactor {
	r := redactor{known: append([]string{c.APIKey}, c.Secrets...)}
	r.secrets = append(r.secrets, r.known...)
	for _, v := range c.Headers {
		r.secrets = append(r.secrets, v)
		if _, token, ok := strings.Cut(v, " "); ok { // "Bearer …"
			r.secrets = append(r.secrets, token)
		}
	}
	return r
}

func hide(s string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			s = strings.ReplaceAll(s, secret, hidden)
		}
	}
	return s
}

func (r redactor) clean(s string) string {
	return keyShaped.ReplaceAllString(hide(s, r.secrets), hidden)
}

// cleanTurn hides secrets in an answer: a server may well repeat what it was sent.
func (r redactor) cleanTurn(p Provider, t *Turn) error {
	if !slices.ContainsFunc(r.known, func(secret string) bool { return len(secret) >= minSecret }) {
		return nil
	}
	known := func(s string) string { return hide(s, r.known) }
	t.Model, t.RequestID, t.Refusal = known(t.Model), known(t.RequestID), known(t.Refusal)
	message := EditStrings(t.Message, known)
	if bytes.Equal(message, t.Message) {
		return nil
	}
	t.Message = message
	var err error
	t.Text, t.Calls, err = ParseAssistant(p, message)
	return err
}

// EditStrings applies edit to each string in JSON, names of fields included. What
// edit leaves as it is keeps its bytes, and the whole stays JSON.
func EditStrings(raw json.RawMessage, edit func(string) string) json.RawMessage {
	return mapStrings(raw, func(literal []byte) []byte {
		text := unquote(literal[1:max(1, len(literal)-1)])
		if edited := edit(text); edited != text {
			return quote(edited)
		}
		return literal
	})
}

// cleanError hides secrets in all that an error shows, and bounds it.
func (r redactor) cleanError(e *Error) {
	e.Message = strings.ToValidUTF8(r.clean(e.Message), "�")
	if len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "") + "…"
	}
	e.Code = r.clean(excerpt(e.Code))
	e.RequestID = r.clean(excerpt(e.RequestID))
	e.Generation = r.clean(e.Generation)
}
