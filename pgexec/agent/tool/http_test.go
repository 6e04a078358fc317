package tool_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-Key"), body)
}

func TestHTTP_ArgumentsGoWhereTheDefinitionSays(t *testing.T) {
	b := setup(t, echo)
	got := b.run(`"tools": [
		{"type": "http", "name": "get", "url": "{URL}/users/{id}/orders?fixed=1&in={id}", "parameters": {"properties": {"id": {}, "q": {}, "n": {}}}},
		{"type": "http", "name": "post", "method": "POST", "url": "{URL}/orders", "query": ["dry"], "parameters": {"properties": {"dry": {}, "item": {}}}}
	]`,
		call("get", `{"id": "a/b ?&", "q": "x y&z=1", "n": 9007199254740993}`),
		call("post", `{"item": "<tea>", "dry": true}`),
		call("post", `{}`),
		call("get", `{"id": ".."}`),
		call("get", `{"q": "x"}`),
		call("get", `{"id": {"a": 1}}`),
		call("put", `{}`),
		llm.Call{ID: "faulty", Name: "get", Fault: "the arguments are not JSON"},
	)
	want(t, got[0], `GET /users/a%2Fb%20%3F&/orders?fixed=1&in=a%2Fb+%3F%26&n=9007199254740993&q=x+y%26z%3D1  `, false)
	want(t, got[1], `POST /orders?dry=true  {"item":"<tea>"}`, false)
	want(t, got[2], `POST /orders  {}`, false)
	want(t, got[3], `error: the argument id is "..", which cannot be a part of a path`, true)
	want(t, got[4], `error: the argument id is missing`, true)
	want(t, got[5], `error: the argument id is {"a":1}, must be a text or a number`, true)
	want(t, got[6], `error: there is no tool "put"; the tools are get, post`, true)
	want(t, got[7], `error: the arguments are not JSON`, true)
	if n := query[int](b, `select count(*)::int from pgexec.nodes where node_id like 'call-%'`); n != 6 {
		t.Errorf("%d nodes of calls, want 6: one that cannot be made has none", n)
	}
}

func TestHTTP_SecretsAreSentAndNeverRecorded(t *testing.T) {
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repeated", r.Header.Get("X-Key"))
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusBadRequest)
		}
		if r.Header.Get("X-Key") == `Bearer s3cr"et-value` {
			fmt.Fprintf(w, "right: %s", r.Header.Get("X-Key"))
		}
	})
	if err := os.WriteFile(filepath.Join(b.env.Secrets.Dir, "key"), []byte(`s3cr"et-value`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	header := `"headers": {"X-Key": {"file": "` + b.env.Secrets.Dir + `/key", "prefix": "Bearer "}}`
	got := b.run(`"tools": [
		{"type": "http", "name": "ok", "url": "{URL}/ok", `+header+`},
		{"type": "http", "name": "fail", "url": "{URL}/fail", `+header+`},
		{"type": "http", "name": "other", "url": "{URL}/ok", "headers": {"X-Key": {"env": "PATH"}}}
	]`, call("ok", `{}`), call("fail", `{}`), call("other", `{}`))
	want(t, got[0], "right: Bearer (hidden)", false)
	want(t, got[1], "error: GET "+b.url+"/fail answered 400 Bad Request: right: Bearer (hidden)", true)
	if !got[2].IsError || !strings.Contains(got[2].Text, "PATH may not be used") {
		t.Errorf("a variable that is no secret: %+v", got[2])
	}
	if n := query[int](b, `select count(*)::int from pgexec.run_log where position('s3cr' in record) > 0`); n != 0 {
		t.Errorf("%d records hold the secret", n)
	}
}

func TestHTTP_ADefinitionNarrowsWhereItsToolsMayGo(t *testing.T) {
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1)+"/x", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, "here")
	})
	const tools = `"tools": [{"type": "http", "name": "here", "url": "{URL}/x"}, {"type": "http", "name": "away", "url": "{URL}/away"}], `
	got := b.run(tools+`"http_allow": [".example.org", "127.0.0.1"]`, call("here", `{}`), call("away", `{}`))
	want(t, got[0], "here", false)
	if !got[1].IsError || !strings.Contains(got[1].Text, "address refused: http_allow of this agent's definition does not have localhost:") {
		t.Errorf("a redirect to another host: %+v", got[1])
	}
	got = b.run(tools+`"http_allow": []`, call("here", `{}`))
	if !got[0].IsError || !strings.Contains(got[0].Text, "http_allow") {
		t.Errorf("nothing is allowed: %+v", got[0])
	}
}

// C43: a service that honours the key does the work once, however often it is asked.
func TestHTTP_SameIdempotencyKeyOnEveryAttempt_C43(t *testing.T) {
	keys := make(chan string, 10)
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		if len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	id := b.start(`"tools": [{"type": "http", "name": "refund", "method": "POST", "url": "{URL}/refund", "max_attempts": 2}]`, call("refund", `{}`))
	want(t, b.results(id)[0], "(status 200, no body)", false)
	for range 2 {
		if key, own := <-keys, id.String()+"/call-1-1"; key != own {
			t.Errorf("key %q, want %q", key, own)
		}
	}
}
