package tool

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/definition"
)

// An argument stays in its place of the URL, whatever it is.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"a", "a/b", "..", "../x", "%2e%2e", "?x=1", "&in=2", "#f", "@evil.example", "\\", "\x00", "é", "//evil.example", ";", "+", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec := Spec{Tool: definition.Tool{Name: "x", Remote: definition.Remote{URL: "https://host:8443/users/{id}/orders?fixed=1&in={id}"}, HTTPTool: definition.HTTPTool{Method: http.MethodGet}}}
		var text string
		if json.Unmarshal(quote(s), &text) != nil {
			t.Fatalf("%q cannot be written", s)
		}
		in, err := spec.request(map[string]json.RawMessage{"id": quote(s), "rest": quote(s)})
		if err != nil {
			if text != "" && strings.Trim(text, ".") != "" {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		u, err := url.Parse(in.URL)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(u.EscapedPath(), "/")
		if u.Host != "host:8443" || u.Scheme != "https" || u.User != nil || u.Fragment != "" || len(parts) != 4 || parts[1] != "users" || parts[3] != "orders" {
			t.Fatalf("%q makes %s", s, in.URL)
		}
		if got, _ := url.PathUnescape(parts[2]); got != text || path.Clean(u.EscapedPath()) != u.EscapedPath() {
			t.Fatalf("%q makes the path %s", s, u.EscapedPath())
		}
		q := u.Query()
		if len(q) != 3 || q.Get("fixed") != "1" || q.Get("in") != text || q.Get("rest") != text {
			t.Fatalf("%q makes the query %s", s, u.RawQuery)
		}
	})
}
