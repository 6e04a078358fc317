package llm

import (
	"regexp"
	"strings"
)

// keyShaped is what a key looks like, also where its middle is hidden by stars.
var keyShaped = regexp.MustCompile(`\b(sk|gsk|xai|key)-[A-Za-z0-9*_-]{8,}`)

const hidden = "[redacted]"

// redactor hides secrets from what is shown and recorded: the key, the values of
// headers, and what looks like a key.
type redactor struct{ secrets []string }

// minSecret bounds, in bytes, what is hidden: a header such as "1" is no secret,
// and hiding it would make texts unreadable.
const minSecret = 6

func newRedactor(c *Config) redactor {
	var r redactor
	if c.APIKey != "" {
		r.secrets = append(r.secrets, c.APIKey)
	}
	for _, v := range c.Headers {
		r.secrets = append(r.secrets, v)
		if _, token, ok := strings.Cut(v, " "); ok { // "Bearer …"
			r.secrets = append(r.secrets, token)
		}
	}
	return r
}

func (r redactor) clean(s string) string {
	for _, secret := range r.secrets {
		if len(secret) >= minSecret {
			s = strings.ReplaceAll(s, secret, hidden)
		}
	}
	return keyShaped.ReplaceAllString(s, hidden)
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
