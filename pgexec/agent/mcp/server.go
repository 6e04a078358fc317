package mcp

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Server is an MCP server: a URL that speaks streamable HTTP, or a command that
// speaks over stdin and stdout.
type Server struct {
	Name string

	// Command and Env are a program with its arguments and "NAME=value" variables.
	// They count in [Config] only: of a server without URL that is passed to a
	// [Pool], the pool looks at the name alone. The program sees these variables and,
	// of the replica's own, those that say where things are (PATH, HOME, …).
	Command []string
	Env     []string

	// URL makes the server a remote one.
	URL string
	// Headers are sent to the host of URL and to no other, wherever it redirects to.
	Headers map[string]string
	// HTTPClient sends the requests to URL in place of the pool's, on sessions of its own.
	HTTPClient *http.Client
}

// key tells apart servers that may not share a session.
func (s Server) key() string {
	if s.URL == "" {
		return "stdio " + s.Name
	}
	var b strings.Builder
	fmt.Fprintf(&b, "http %p %q %q", s.HTTPClient, s.Name, s.URL)
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		fmt.Fprintf(&b, " %q %q", http.CanonicalHeaderKey(name), s.Headers[name])
	}
	return b.String()
}

// validate refuses what cannot be connected to.
func (s Server) validate() error {
	if s.URL == "" {
		if len(s.Command) == 0 {
			return ErrUnknownServer
		}
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("url: %q is not of the form https://host/path", plainURL(s.URL))
	}
	return nil
}

// plainURL is a URL without user, query and fragment, which may hold secrets.
func plainURL(s string) string {
	s, _, _ = strings.Cut(s, "?")
	s, _, _ = strings.Cut(s, "#")
	if u, err := url.Parse(s); err == nil {
		u.User = nil
		return u.String()
	}
	return "(unreadable)"
}

// minSecret is the length, in bytes, from which a value is worth hiding. Shorter
// ones are switches and numbers, and would tear holes into every text.
const minSecret = 6

// redactor hides the values of a server's headers and variables, wherever they
// turn up: a server may well repeat them in what it says.
func (s Server) redactor() *strings.Replacer {
	var secrets []string
	for _, v := range s.Headers {
		secrets = append(secrets, v)
		if _, token, ok := strings.Cut(v, " "); ok {
			secrets = append(secrets, strings.TrimSpace(token))
		}
	}
	for _, env := range s.Env {
		_, v, _ := strings.Cut(env, "=")
		secrets = append(secrets, v)
	}
	if u, err := url.Parse(s.URL); err == nil {
		for _, values := range u.Query() {
			secrets = append(secrets, values...)
		}
		password, _ := u.User.Password()
		secrets = append(secrets, password)
	}
	secrets = slices.DeleteFunc(secrets, func(v string) bool { return len(v) < minSecret })
	// Of two that begin alike the longer one is hidden as a whole.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, v := range slices.Compact(secrets) {
		pairs = append(pairs, v, "(hidden)")
	}
	return strings.NewReplacer(pairs...)
}

// redactedError says what another error says, without a server's secrets. What
// it is made of can still be asked for with [errors.Is] and [errors.As].
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
