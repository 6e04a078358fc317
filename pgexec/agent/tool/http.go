package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pgexec/runtime/pgexec"
)

// httpInput is what kind http is given for a call.
type httpInput struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
	Timeout string            `json:"timeout"`
}

// handleHTTP does a call of a tool of type http.
func (env *Env) handleHTTP(ctx context.Context, n *pgexec.Node, in callInput) (json.RawMessage, error) {
	spec, hosts, err := pinnedFor(n, in.Tool)
	if err != nil {
		return nil, err
	}
	args, err := arguments(in.Args)
	if err != nil {
		return nil, err
	}
	request, err := spec.request(args)
	if err != nil {
		return nil, err
	}
	headers, hide, err := env.headers(spec)
	if err != nil {
		return nil, err
	}
	request.Headers = headers
	raw, err := EncodeJSON(request)
	if err != nil {
		return nil, err
	}
	out, err := env.Stock.HTTP(ctx, env.client(hosts), raw, n.IdempotencyKey())
	if err != nil {
		return nil, hide.err(err)
	}
	return keep(ctx, n, spec, hide.json(out))
}

// request puts the arguments where the definition has them: into the URL, the query, the body.
func (s *Spec) request(args map[string]json.RawMessage) (*httpInput, error) {
	left := maps.Clone(args)
	text, err := s.fill(left)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, badArguments("they do not make a URL")
	}
	in := &httpInput{Method: s.Method, Timeout: seconds(s.Timeout)}
	if s.Method == http.MethodGet || s.Method == http.MethodDelete {
		u.RawQuery = addQuery(u.RawQuery, slices.Sorted(maps.Keys(left)), left)
	} else {
		u.RawQuery = addQuery(u.RawQuery, s.Query, left)
		in.Body = object(left)
	}
	in.URL = u.String()
	return in, nil
}

// addQuery adds the named arguments to a query, and takes them out of args.
func addQuery(query string, names []string, args map[string]json.RawMessage) string {
	for _, name := range names {
		value, ok := args[name]
		delete(args, name)
		if !ok || isNull(value) {
			continue
		}
		if query != "" {
			query += "&"
		}
		query += url.QueryEscape(name) + "=" + url.QueryEscape(plain(value))
	}
	return query
}

// fill replaces the placeholders of the URL by their arguments, which it takes out of args.
func (s *Spec) fill(args map[string]json.RawMessage) (string, error) {
	path, query, hasQuery := strings.Cut(s.URL, "?")
	used := s.Placeholders()
	for _, name := range used {
		value, ok := args[name]
		switch {
		case !ok || isNull(value):
			return "", badArguments("the argument %s is missing", name)
		case value[0] == '{' || value[0] == '[':
			return "", badArguments("the argument %s is %.100s, must be a text or a number", name, value)
		}
		hole, filler := "{"+name+"}", plain(value)
		if strings.Contains(path, hole) && (filler == "" || filler == "." || filler == "..") {
			return "", badArguments("the argument %s is %q, which cannot be a part of a path", name, filler)
		}
		path = strings.ReplaceAll(path, hole, url.PathEscape(filler))
		query = strings.ReplaceAll(query, hole, url.QueryEscape(filler))
	}
	for _, name := range used {
		delete(args, name)
	}
	if hasQuery {
		path += "?" + query
	}
	return path, nil
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// plain is a string's text, and the JSON of anything else.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// object writes arguments as an object, always in the same order.
func object(args map[string]json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(args)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", quote(name), args[name])
	}
	b.WriteByte('}')
	return b.Bytes()
}
