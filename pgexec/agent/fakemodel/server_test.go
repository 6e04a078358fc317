package fakemodel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

// ask is an OpenAI request of one user.
func ask(user string) string {
	return fmt.Sprintf(`{"model":"fake-1","messages":[{"role":"user","content":%q}]}`, user)
}

func askStreamed(user string) string {
	return strings.Replace(ask(user), `"model"`, `"stream":true,"model"`, 1)
}

func TestServer_EqualRequestsGetEqualReplies(t *testing.T) {
	t.Parallel()
	one, other := start(t, weather), start(t, weather)
	for _, body := range []string{ask("weather"), askStreamed("weather")} {
		_, first := post(t, one.URL+"/v1/chat/completions", body, nil)
		_, again := post(t, one.URL+"/v1/chat/completions", body, nil)
		_, elsewhere := post(t, other.URL+"/v1/chat/completions", body, nil)
		if first != again || first != elsewhere || !strings.Contains(first, "forecast") {
			t.Errorf("got\n%s\n%s\n%s", first, again, elsewhere)
		}
		_, different := post(t, one.URL+"/v1/chat/completions", body+" ", nil)
		if first == different {
			t.Error("another request got the same ids")
		}
	}
}

func TestServer_RulesInOrderAndAsOftenAsTheyMay(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {when: {user: again, attempt: 1}, error: {status: 503}}
  - {times: 2, when: {user: {regexp: "^bu+sy$"}}, error: {status: 429}}
  - {when: {model: other}, reply: {text: other model}}
  - {when: {tool: search}, reply: {text: has search}}
  - {when: {system: pirate}, reply: {text: Arr}}
  - {when: {stream: true}, reply: {text: streamed}}
  - {when: {turn: 2-}, reply: {text: late}}
  - {when: {api: openai}, reply: {text: last}}
`)
	for i, tc := range []struct {
		body, want string
		status     int
	}{
		{ask("buusy"), "rate_limit_exceeded", 429},
		{ask("busy"), "rate_limit_exceeded", 429},
		{ask("busy"), "last", 200},
		{ask("again 1"), "server_error", 503},
		{ask("again 2"), "server_error", 503},
		{ask("again 1"), "last", 200},
		{strings.Replace(ask("x"), "fake-1", "other", 1), "other model", 200},
		{strings.Replace(ask("x"), `"model"`, `"tools":[{"type":"function","function":{"name":"search"}}],"model"`, 1), "has search", 200},
		{strings.Replace(ask("x"), `[`, `[{"role":"system","content":"You are a pirate."},`, 1), "Arr", 200},
		{askStreamed("x"), "streamed", 200},
		{strings.Replace(ask("x"), `[`, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"},`, 1), "late", 200},
	} {
		status, answer := post(t, m.URL+"/v1/chat/completions", tc.body, nil)
		if status != tc.status || !strings.Contains(answer, tc.want) {
			t.Errorf("%d: %d %s; want %d %s", i, status, answer, tc.status, tc.want)
		}
	}
}

func TestServer_SaysWhyNoRuleFits(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {name: tea, when: {user: tea}, reply: {text: x}}
  - {times: 1, when: {turn: 0}, reply: {text: once}}
`)
	for _, want := range []int{200, 400} {
		if status, answer := post(t, m.URL+"/v1/chat/completions", ask("coffee"), nil); status != want {
			t.Fatalf("%d %s", status, answer)
		}
	}
	got := m.Requests()[1]
	for _, want := range []string{`turn 0`, `last user text "coffee"`, `rule 1 "tea" (line 3): user has no "tea"`, "rule 2 (line 4): it fired 1 times"} {
		if !strings.Contains(got.Problem, want) {
			t.Errorf("%q lacks %q", got.Problem, want)
		}
	}
	if got.Rule != "" || got.Status != 400 {
		t.Errorf("got %+v", got)
	}
}

// Rules may fire exactly as often as they say, whoever asks at the same time.
func TestServer_CountsUnderLoad(t *testing.T) {
	t.Parallel()
	m := start(t, `rules: [{times: 10, error: {status: 429}}, {reply: {text: fine}}]`)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 5 {
				post(t, m.URL+"/v1/chat/completions", ask(fmt.Sprint(i)), nil)
			}
		})
	}
	wg.Wait()
	count := map[int]int{}
	for i, r := range m.Requests() {
		count[r.Status]++
		if r.Number != i+1 {
			t.Errorf("request %d has number %d", i+1, r.Number)
		}
	}
	if count[429] != 10 || count[200] != 190 {
		t.Errorf("got %v", count)
	}
}

// C50: a reply that breaks has said what it had to, and not that it is complete.
func TestServer_BrokenStreams(t *testing.T) {
	t.Parallel()
	m := start(t, `
rules:
  - {when: {user: cut early}, reply: {text: 123456, chunk: 1, break: {with: cut, after: 2}}}
  - {when: {user: cut}, reply: {text: 123456, calls: [{name: f}], chunk: 1, break: {with: cut}}}
  - {when: {user: reset}, reply: {text: 123456, chunk: 3, break: {with: reset, after: 1}}}
  - {when: {user: error}, reply: {text: 123456, break: {error: {message: Overloaded}}}}
`)
	for user, want := range map[string]struct{ has, lacks string }{
		"cut early": {`"content":"2"`, `"content":"3"`},
		"cut":       {`"arguments":"}"`, "finish_reason\":\""},
		"reset":     {`"content":"123"`, `"content":"456"`},
		"error":     {`"message":"Overloaded"`, "finish_reason\":\""},
	} {
		for _, body := range []string{askStreamed(user), anthropicBody(user)} {
			url, terminal := "/v1/chat/completions", "[DONE]"
			if body == anthropicBody(user) {
				url, terminal = "/v1/messages", "message_stop"
			}
			answer, err := drain(t, m.URL+url, body)
			if (err != nil) != (user == "reset") {
				t.Errorf("%s: %v", user, err)
			}
			if strings.Contains(answer, terminal) || url == "/v1/chat/completions" && (!strings.Contains(answer, want.has) || strings.Contains(answer, want.lacks)) {
				t.Errorf("%s: %s", user, answer)
			}
		}
	}
	if status, answer := post(t, m.URL+"/v1/chat/completions", ask("error"), nil); status != 500 || !strings.Contains(answer, "Overloaded") {
		t.Errorf("not streamed: %d %s", status, answer)
	}
	if _, err := drain(t, m.URL+"/v1/chat/completions", ask("cut")); err == nil {
		t.Error("a document that was cut is an answer")
	}
}

func anthropicBody(user string) string {
	return strings.Replace(askStreamed(user), `"model"`, `"max_tokens":10,"model"`, 1)
}

// drain reads as much of an answer as there is.
func drain(t *testing.T, url, body string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

// A stalled reply stands still until the client leaves.
func TestServer_StalledStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	m := start(t, `rules: [{reply: {text: 123456, chunk: 3, break: {with: stall, after: 1}}}]`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", m.URL+"/chat/completions", strings.NewReader(askStreamed("x")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"content":"123"`) {
	}
	cancel()
	for lines.Scan() {
		if strings.Contains(lines.Text(), "456") {
			t.Error("the stream went on")
		}
	}
	if lines.Err() == nil {
		t.Error("the stream ended by itself")
	}
}

// Latency comes before the first byte, the pause between any two chunks.
func TestServer_TakesTheTimeThatTheScriptSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := fakemodel.Load(strings.NewReader(`rules: [{latency: 2s, reply: {text: 123456, chunk: 2, pause: 300ms}}]`))
		if err != nil {
			t.Fatal(err)
		}
		m := fakemodel.New(s, nil)
		for body, want := range map[string]time.Duration{ask("x"): 2 * time.Second, askStreamed("x"): 2600 * time.Millisecond} {
			begun := time.Now()
			w := httptest.NewRecorder()
			m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body)))
			if took := time.Since(begun); took != want || w.Code != 200 {
				t.Errorf("%d after %s, want %s", w.Code, took, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(ask("x"))))
		if w.Body.Len() > 0 {
			t.Error("who has gone got an answer")
		}
	})
}

// The list has bodies byte for byte and no keys.
func TestServer_KeepsNoKeys(t *testing.T) {
	t.Parallel()
	m := start(t, "api_key: s3cret\nrules: [{reply: {text: fine}}]")
	body := "{ \"model\":\"x\", \"messages\": [{\"role\":\"user\",\"content\":\"<é>\"}]}\n"
	for header, want := range map[string]int{"Bearer s3cret": 200, "Bearer other-s3cret": 401} {
		if status, answer := post(t, m.URL+"/v1/chat/completions", body, map[string]string{"Authorization": header, "X-Team-Token": "Team s3cret", "Idempotency-Key": "run/node"}); status != want {
			t.Errorf("%s: %d %s", header, status, answer)
		}
	}
	if status, answer := post(t, m.URL+"/v1/messages", anthropicBody("x"), map[string]string{"X-Api-Key": "s3cret", "Anthropic-Version": "2023-06-01"}); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
	resp, err := http.Get(m.URL + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "s3cret") {
		t.Errorf("a key is in %s", raw)
	}
	var got []fakemodel.Request
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Body != body || got[1].Attempt != 2 || got[0].Header.Get("Idempotency-Key") != "run/node" || got[0].Header.Get("X-Team-Token") != "(not kept)" {
		t.Errorf("got %+v", got)
	}
}

// A template can fail with some conversations only; the request is then refused, and told why.
func TestServer_TemplateThatFailsLater(t *testing.T) {
	t.Parallel()
	m := start(t, `rules: [{reply: {text: "{{if last_user}}{{index last_user 99}}{{end}}"}}]`)
	if status, answer := post(t, m.URL+"/v1/chat/completions", ask("x"), nil); status != 400 || !strings.Contains(answer, "index out of range") {
		t.Errorf("%d %s", status, answer)
	}
	if got := m.Requests()[0]; got.Rule != "rule 1 (line 1)" || !strings.Contains(got.Problem, "index out of range") {
		t.Errorf("got %+v", got)
	}
}

func TestServer_TooLargeRequest(t *testing.T) {
	t.Parallel()
	m := start(t, `rules: [{reply: {text: fine}}]`)
	if status, answer := post(t, m.URL+"/v1/chat/completions", strings.Repeat(" ", 33<<20), nil); status != 413 {
		t.Errorf("%d %s", status, answer)
	}
}
