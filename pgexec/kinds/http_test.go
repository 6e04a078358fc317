package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/executor"
)

const testKey = "0192d3c4-0000-7000-8000-000000000001/refund"

// newTestHTTP returns the kind with a list of allowed destinations.
func newTestHTTP(t *testing.T, allow ...string) *httpKind {
	t.Helper()
	list, err := parseAllow(allow)
	if err != nil {
		t.Fatal(err)
	}
	k := &httpKind{client: newHTTPClient(list)}
	t.Cleanup(k.client.CloseIdleConnections)
	return k
}

// newServer starts a local service whose connections end with the test.
func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// failure returns what the retry decision sees of an error.
func failure(t *testing.T, err error) executor.Failure {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	var all executor.Failure
	all.Err = err
	for e := err; ; {
		var f *executor.Failure
		if !errors.As(e, &f) {
			return all
		}
		all.Permanent = all.Permanent || f.Permanent
		all.RetryAfter = max(all.RetryAfter, f.RetryAfter)
		if all.Code == "" {
			all.Code = f.Code
		}
		e = f.Err
	}
}

// wantFailure checks code, permanence and words of an error.
func wantFailure(t *testing.T, err error, code string, permanent bool, words ...string) {
	t.Helper()
	f := failure(t, err)
	if f.Code != code || f.Permanent != permanent {
		t.Errorf("code %q, permanent %t; want %q, %t: %v", f.Code, f.Permanent, code, permanent, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestHTTP_SendsWhatTheInputSays(t *testing.T) {
	t.Parallel()
	type seen struct {
		method, uri, body string
		header            http.Header
	}
	for name, tc := range map[string]struct {
		input  string // %s is the server
		method string
		body   string
		header map[string]string
	}{
		"get by default":  {`{"url":"%s/a?b=1"}`, "GET", "", map[string]string{"Idempotency-Key": testKey, "User-Agent": "pgexec", "Content-Type": ""}},
		"post with body":  {`{"url":"%s","body":{"b": 1e400, "a":"\u0000\ud800"}}`, "POST", `{"b": 1e400, "a":"\u0000\ud800"}`, map[string]string{"Content-Type": "application/json"}},
		"null is absent":  {`{"url":"%s","body":null,"method":null,"headers":null,"timeout":null}`, "GET", "", nil},
		"method given":    {`{"url":"%s","method":"put","body":[1]}`, "PUT", `[1]`, nil},
		"string as JSON":  {`{"url":"%s","body":"x\ny"}`, "POST", `"x\ny"`, map[string]string{"Content-Type": "application/json"}},
		"string as it is": {`{"url":"%s","body":"a=1&b=ü","headers":{"content-type":"application/x-www-form-urlencoded"}}`, "POST", "a=1&b=ü", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		"other JSON type": {`{"url":"%s","body":{"a":1},"headers":{"Content-Type":"application/vnd.api+json"}}`, "POST", `{"a":1}`, map[string]string{"Content-Type": "application/vnd.api+json"}},
		"headers":         {`{"url":"%s","headers":{"X-One":"1","x-id":42,"X-Many":["a",2],"User-Agent":"me"}}`, "GET", "", map[string]string{"X-One": "1", "X-Id": "42", "X-Many": "a|2", "User-Agent": "me"}},
		"own key":         {`{"url":"%s","headers":{"idempotency-key":"mine"}}`, "GET", "", map[string]string{"Idempotency-Key": "mine"}},
		"timeout forms":   {`{"url":"%s","timeout":"1m30s"}`, "GET", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan seen, 1)
			srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got <- seen{r.Method, r.RequestURI, string(body), r.Header}
			})
			_, err := newTestHTTP(t, "127.0.0.1").exchange(t.Context(), json.RawMessage(fmt.Sprintf(tc.input, srv.URL)), testKey)
			if err != nil {
				t.Fatal(err)
			}
			s := <-got
			if s.method != tc.method || s.body != tc.body {
				t.Errorf("got %s with body %q, want %s with %q", s.method, s.body, tc.method, tc.body)
			}
			for name, want := range tc.header {
				if v := strings.Join(s.header.Values(name), "|"); v != want {
					t.Errorf("header %s is %q, want %q", name, v, want)
				}
			}
		})
	}
}

// C43: the key is the same on every attempt, also when it goes through a redirect.
func TestHTTP_SameIdempotencyKeyOnEveryAttempt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	answer := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	other := newServer(t, answer)
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, other.URL, http.StatusPermanentRedirect)
			return
		}
		answer(w, r)
	})
	k := newTestHTTP(t, "127.0.0.1")
	for _, path := range []string{"/", "/moved", "/", "/moved"} {
		_, _ = k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+path+`","body":{"amount":5}}`), testKey)
	}
	if want := slices.Repeat([]string{testKey}, 4); !slices.Equal(keys, want) {
		t.Fatalf("keys %q, want %q", keys, want)
	}
}

func TestHTTP_KeyOfAnyNodeIDFitsInAHeader(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"run/plain-1":  "run/plain-1",
		"run/a b":      "run/a%20b",
		"run/größe":    "run/gr%C3%B6%C3%9Fe",
		"run/a%20b":    "run/a%2520b",
		"run/x\r\nY:1": "run/x%0D%0AY:1",
	} {
		if got := headerText(key); got != want {
			t.Errorf("%q becomes %q, want %q", key, got, want)
		}
	}
}

func TestHTTP_BadInputFailsAtOnce(t *testing.T) {
	t.Parallel()
	k := newTestHTTP(t)
	for _, c := range [][2]string{
		{`[]`, "input: want an object, got a list"},
		{`null`, "input: want an object, got null"},
		{`{}`, "url is missing"},
		{`{"url":""}`, "url is missing"},
		{`{"url":5}`, "url: want a string, got the number 5"},
		{`{"url":"http://h","urll":1}`, `input: unknown field "urll"; the fields are method, url, headers, body, timeout`},
		{`{"URL":"http://h"}`, `unknown field "URL"`},
		{`{"url":"ftp://h/x"}`, `url: "ftp://h/x" does not begin with http:// or https://`},
		{`{"url":"file:///etc/passwd"}`, "does not begin with http://"},
		{`{"url":"h/x"}`, "does not begin with http://"},
		{`{"url":"http:///x"}`, "names no host"},
		{`{"url":"http://:80/x"}`, "names no host"},
		{`{"url":"http://h:99999/"}`, "port 99999 is not between 1 and 65535"},
		{`{"url":"http://h:0/"}`, "port 0 is not between"},
		{`{"url":"http://h\u0000/"}`, "url: what follows http:// is not a URL"},
		{`{"url":"1:2"}`, "url: it is not a URL"},
		{`{"url":"htps://h/x?a=b"}`, `url: "htps://h/x?…" does not begin with http:// or https://`},
		{`{"url":"http://h","method":"A B"}`, `method: "A B" is not an HTTP method`},
		{`{"url":"http://h","method":"connect"}`, "CONNECT is not supported"},
		{`{"url":"http://h","method":["GET"]}`, "method: want a string, got a list"},
		{`{"url":"http://h","headers":[]}`, "headers: want an object, got a list"},
		{`{"url":"http://h","headers":{"a b":"1"}}`, `headers: "a b" is not a header name`},
		{`{"url":"http://h","headers":{"a":"1\r\nb: 2"}}`, "headers.a: a header's value cannot hold line breaks"},
		{`{"url":"http://h","headers":{"a":{"b":1}}}`, "headers.a: want a string, a number or a list of them, got an object"},
		{`{"url":"http://h","headers":{"a":[null]}}`, "headers.a: want a string, a number or a list of them, got null"},
		{`{"url":"http://h","headers":{"host":"x"}}`, "headers: Host is set by the client"},
		{`{"url":"http://h","headers":{"transfer-encoding":"chunked"}}`, "headers: Transfer-Encoding is set by the client"},
		{`{"url":"http://h","timeout":"soon"}`, `timeout: "soon" is neither a number of seconds nor a duration`},
		{`{"url":"http://h","timeout":601}`, "timeout: 10m1s is over the limit of 10m0s"},
		{`{"url":"http://h","timeout":1e300}`, "is over the limit of 10m0s"},
		{`{"url":"http://h","timeout":0}`, "timeout: 0s is too short"},
		{`{"url":"http://h","timeout":-5}`, "is too short"},
		{`{"url":"http://h","timeout":[]}`, "timeout: want a number of seconds or a duration"},
	} {
		input, words := c[0], c[1]
		_, err := k.exchange(t.Context(), json.RawMessage(input), testKey)
		wantFailure(t, err, "bad_input", true, words)
	}
	for name, input := range map[string]string{
		"url: ":     `{"url":"http://h/` + strings.Repeat("x", maxURL) + `"}`,
		"body: ":    `{"url":"http://h","body":"` + strings.Repeat("x", maxRequestBody) + `"}`,
		"headers: ": `{"url":"http://h","headers":{"a":"` + strings.Repeat("x", maxRequestHeader) + `"}}`,
	} {
		_, err := k.exchange(t.Context(), json.RawMessage(input), testKey)
		wantFailure(t, err, "bad_input", true, name, "over the limit of")
	}
}

func TestHTTP_ErrorsDoNotRepeatSecretsOfTheURL(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.Header().Set("Location", "http://h/%zz?token=hunter2")
			w.WriteHeader(http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	host := strings.TrimPrefix(srv.URL, "http://")
	k := newTestHTTP(t, "127.0.0.1")
	for _, url := range []string{
		"http://user:hunter2@" + host + "/x?token=hunter2",
		"http://user:hunter2@127.0.0.1:1/x?token=hunter2",
		"http://user:hunter2@10.0.0.1/x?token=hunter2",
		"ftp://user:hunter2@h/x",
		"http://user:hunter2@h:99999/x",
		"http://user:hunter2@h/%zz",
		"http://user:hun/hunter2@h/",
		"http://h/%zz?token=hunter2",
		"http://h:hunter2/",
		"user@h:hunter2:x",
		"htps://h/?token=hunter2",
		"http:///x?token=hunter2",
		"http:/user:hunter2@h/x",
		"user:hunter2@h/x",
		"/user:hunter2@h/x#hunter2",
		srv.URL + "/broken",
	} {
		_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+url+`"}`), testKey)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestHTTP_OutputKeepsJSONByteForByte(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"json":            {"application/json", `{"b": 1e400, "a":"\u0000\ud800<&>", "n":12345678901234567890}`, `"body":{"b": 1e400, "a":"\u0000\ud800<&>", "n":12345678901234567890}}`},
		"json suffix":     {"application/problem+json; charset=utf-8", ` [1]` + "\n", `"body": [1]` + "\n}"},
		"broken type":     {"application/json; =", `[1]`, `"body":[1]}`},
		"invalid json":    {"application/json", `{"a":`, `"body":"{\"a\":"}`},
		"two values":      {"application/json", `1 2`, `"body":"1 2"}`},
		"empty json":      {"application/json", ``, `"body":""}`},
		"text":            {"text/plain", "a\"b<&>\n\u2028ü", `"body":"a\"b<&>\n\u2028ü"}`},
		"json as text":    {"text/plain", `{"a":1}`, `"body":"{\"a\":1}"}`},
		"nul":             {"text/plain", "a\x00b", `"body":"a\u0000b"}`},
		"binary":          {"application/octet-stream", "\xff\xfe\x00", `"body_base64":"//4A"}`},
		"binary as json":  {"application/json", "\"\xff\"", `"body_base64":"Iv8i"}`},
		"lines of json":   {"application/x-ndjson", "{}\n{}\n", `"body":"{}\n{}\n"}`},
		"no content type": {"", "hello", `"body":"hello"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{tc.contentType}
				w.Header()["Date"] = nil
				_, _ = io.WriteString(w, tc.body)
			})
			out, err := newTestHTTP(t, "127.0.0.1").exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+`"}`), testKey)
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(out) || !strings.HasPrefix(string(out), `{"status":200,"headers":{`) || !strings.HasSuffix(string(out), tc.want) {
				t.Errorf("output %s\nwant it to end with %s", out, tc.want)
			}
		})
	}
}

func TestHTTP_OutputHeadersHaveOneSpelling(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Date"] = nil
		h["X-Many"] = []string{"a", "b\xff"}
		h["Set-Cookie"] = []string{"a=1", "b=2, c"}
		h["Content-Type"] = []string{"text/plain"}
		w.WriteHeader(http.StatusAccepted)
	})
	out, err := newTestHTTP(t, "127.0.0.1").exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+`"}`), testKey)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"status":202,"headers":{"content-length":"0","content-type":"text/plain","set-cookie":["a=1","b=2, c"],"x-many":"a, b` + "\\ufffd" + `"},"body":""}`
	if string(out) != want {
		t.Errorf("got  %s\nwant %s", out, want)
	}
}

func TestHTTP_SizesAreBounded(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fits":
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write([]byte(strings.Repeat("\xff", maxResponseBody)))
		case "/length":
			w.Header().Set("Content-Length", "99999999")
			_, _ = w.Write(make([]byte, 1024))
		case "/stream":
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 64<<10))
			}
		case "/escapes":
			_, _ = w.Write([]byte(strings.Repeat("\x01", maxResponseBody/2)))
		case "/header":
			w.Header().Set("X-Big", strings.Repeat("x", maxResponseHeader+1))
		}
	})
	k := newTestHTTP(t, "127.0.0.1")
	get := func(path string) (json.RawMessage, error) {
		return k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+path+`"}`), testKey)
	}
	out, err := get("/fits")
	if err != nil || len(out) > maxHTTPOutput {
		t.Errorf("a body at the limit: %d bytes of output, %v", len(out), err)
	}
	_, err = get("/length")
	wantFailure(t, err, "too_large", true, "body of 99999999 bytes, over the limit of 16777216")
	_, err = get("/stream")
	wantFailure(t, err, "too_large", true, "body of more than 16777216 bytes, over the limit of 16777216")
	_, err = get("/escapes")
	wantFailure(t, err, "too_large", true, "body of 8388608 bytes that takes", "over the limit of 33554432")
	_, err = get("/header")
	wantFailure(t, err, "too_large", true, "response header over the limit of 65536 bytes")
}

func TestHTTP_StatusDecidesAboutRetry(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		if v := r.URL.Query().Get("after"); v != "" {
			w.Header().Set("Retry-After", v)
			w.Header().Set("Date", "Tue, 03 Jun 2008 11:00:00 GMT")
		}
		w.WriteHeader(status)
		if r.URL.Query().Has("binary") {
			_, _ = io.WriteString(w, "\xff\xfe\x00\x01\x02\x03\x04\x05")
			return
		}
		_, _ = io.WriteString(w, "why\nit is so "+strings.Repeat("ü", maxExcerpt))
	})
	k := newTestHTTP(t, "127.0.0.1")
	get := func(path string) error {
		_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+path+`"}`), testKey)
		return err
	}
	for _, ok := range []string{"200", "201", "204", "206", "304", "300"} {
		if err := get("/" + ok); err != nil {
			t.Errorf("status %s: %v", ok, err)
		}
	}
	for _, s := range []string{"500", "502", "503", "504", "599", "429", "408", "425"} {
		wantFailure(t, get("/"+s), "http_status", false, "GET "+srv.URL+"/"+s+" answered "+s)
	}
	for _, s := range []string{"400", "401", "403", "404", "409", "422", "451"} {
		wantFailure(t, get("/"+s), "http_status", true, "answered "+s, ": why it is so ü")
	}
	wantFailure(t, get("/404?binary"), "http_status", true, "/404?… answered 404 Not Found: (binary body)")
	for query, want := range map[string]time.Duration{
		"429?after=7": 7 * time.Second,
		"503?after=Tue,+03+Jun+2008+11:05:00+GMT": 5 * time.Minute,
		"503?after=Tue,+03+Jun+2008+10:05:00+GMT": 0,
		"503?after=soon":                 0,
		"503?after=-1":                   0,
		"503?after=99999999999999999999": 0,
		"500?after=2147483647":           2147483647 * time.Second,
		"404?after=7":                    0,
	} {
		if got := failure(t, get("/"+query)).RetryAfter; got != want {
			t.Errorf("%s: retry after %s, want %s", query, got, want)
		}
	}
	if n := len(get("/404").Error()); n > 2*maxExcerpt {
		t.Errorf("error of %d bytes", n)
	}
}

func TestHTTP_ConnectionErrorsAreRetried(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + closed.Addr().String()
	_ = closed.Close()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}
		panic(http.ErrAbortHandler)
	})
	k := newTestHTTP(t, "127.0.0.1")
	for _, url := range []string{nobody, srv.URL, srv.URL + "/half", "http://no-such-host.invalid"} {
		_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+url+`"}`), testKey)
		wantFailure(t, err, "connection", false, "GET "+url+": ")
	}
}

func TestHTTP_TimeoutBoundsTheWholeExchange(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	k := newTestHTTP(t, "127.0.0.1")
	for _, path := range []string{"/header", "/body"} {
		_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+path+`","timeout":0.05}`), testKey)
		wantFailure(t, err, "timeout", false, "no complete answer within 50ms")
	}
}

// An answer that switches protocols unasked hands over the bare connection, on which no context has a hold.
func TestHTTP_UnaskedSwitchOfProtocolsIsRefused(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{"upgrade": "Connection: Upgrade\r\nUpgrade: x\r\n", "bare": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			left := make(chan struct{})
			go func() {
				defer close(left)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1024)) // an answer before the request is none
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+header+"\r\n")
				_, _ = io.Copy(io.Discard, conn) // until the client hangs up
			}()
			url := "http://" + listener.Addr().String()
			result := make(chan error, 1)
			go func() {
				_, err := newTestHTTP(t, "127.0.0.1").exchange(t.Context(), json.RawMessage(`{"url":"`+url+`?token=hunter2"}`), testKey)
				result <- err
			}()
			select {
			case err := <-result:
				wantFailure(t, err, "http_status", true, "GET "+url+"?…: answered 101 Switching Protocols")
			case <-time.After(time.Minute):
				t.Fatal("the exchange hangs")
			}
			<-left
		})
	}
}

// C21: what ends a handler from outside is told from the node's own failure.
func TestHTTP_CutOffIsNotAFailureOfTheNode(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	srv := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	drain := errors.New("draining")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		cancel(drain)
	}()
	_, err := newTestHTTP(t, "127.0.0.1").exchange(ctx, json.RawMessage(`{"url":"`+srv.URL+`"}`), testKey)
	if !errors.Is(err, drain) || isFault(err) {
		t.Fatalf("got %v, want the cause", err)
	}
}
