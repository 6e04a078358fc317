package kinds

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestHTTP_RefusesAddressesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	srv := newServer(t, func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host })
	port := strings.TrimPrefix(srv.URL, "http://127.0.0.1:")
	redirecting := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:"+port+"/", http.StatusTemporaryRedirect)
	})
	_, redirectPort, _ := strings.Cut(strings.TrimPrefix(redirecting.URL, "http://"), ":")
	for _, tc := range []struct{ allow, url string }{
		{"", "http://127.0.0.1:" + port},
		{"", "http://localhost:" + port},
		{"", "http://[::ffff:127.0.0.1]:" + port},
		{"", "http://[64:ff9b::127.0.0.1]:" + port},
		{"", "http://0.0.0.0:" + port},
		{"", "http://[::]:" + port},
		{"", "http://169.254.169.254/latest/meta-data/"},
		{"", "http://10.0.0.1"},
		{"127.0.0.2", "http://127.0.0.1:" + port},
		// The first hop is allowed, the second is not.
		{"127.0.0.1:" + redirectPort, redirecting.URL},
		{"localhost", "http://localhost:" + redirectPort},
	} {
		_, err := newTestHTTP(t, tc.allow).exchange(t.Context(), json.RawMessage(`{"url":"`+tc.url+`"}`), testKey)
		wantFailure(t, err, "address_refused", true, "refused to connect to ", "--http-allow", "PGEXEC_HTTP_ALLOW")
	}
	select {
	case host := <-reached:
		t.Errorf("reached as %s", host)
	default:
	}
	for _, tc := range []struct{ allow, url string }{
		{"127.0.0.0/8", "http://127.0.0.1:" + port},
		{"localhost", "http://localhost:" + port},
		{"127.0.0.1", "http://localhost:" + port},
		{"127.0.0.1:" + redirectPort + ",127.0.0.1:" + port, redirecting.URL},
	} {
		if _, err := newTestHTTP(t, tc.allow).exchange(t.Context(), json.RawMessage(`{"url":"`+tc.url+`"}`), testKey); err != nil {
			t.Errorf("with %q, %s: %v", tc.allow, tc.url, err)
		}
	}
}

// A name with a refused address and a permitted one that does not answer may answer later.
func TestHTTP_PermittedAddressOfANameIsWhatCounts(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(closed.Addr().String())
	_ = closed.Close()
	for _, allow := range []string{"127.0.0.1", "127.0.0.1,::1"} { // localhost often has both
		_, err := newTestHTTP(t, allow).exchange(t.Context(), json.RawMessage(`{"url":"http://localhost:`+port+`"}`), testKey)
		wantFailure(t, err, "connection", false)
	}
}

// A proxy would connect to any address for the asking.
func TestHTTP_TakesNoProxyFromTheEnvironment(t *testing.T) {
	proxy := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	k := newTestHTTP(t, "127.0.0.1")
	if k.client.Transport.(*boundTransport).Proxy != nil {
		t.Error("the client has a proxy function")
	}
	_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"http://no-such-host.invalid"}`), testKey)
	wantFailure(t, err, "connection", false)
}

func TestHTTP_RedirectsAreBoundedAndPlain(t *testing.T) {
	t.Parallel()
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err == nil && n > 0 {
			http.Redirect(w, r, fmt.Sprintf("/%d", n-1), http.StatusFound)
			return
		}
		if r.URL.Path == "/file" {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}
		if r.URL.Path == "/nowhere" {
			w.WriteHeader(http.StatusFound)
		}
	})
	k := newTestHTTP(t, "127.0.0.1")
	get := func(path string) error {
		_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+path+`"}`), testKey)
		return err
	}
	if err := get("/10"); err != nil {
		t.Errorf("10 redirects: %v", err)
	}
	wantFailure(t, get("/11"), "redirect", true, "stopped after 10 redirects")
	wantFailure(t, get("/file"), "redirect", true, `redirect to scheme "file" refused`)
	if err := get("/nowhere"); err != nil {
		t.Errorf("a redirect without a target: %v", err)
	}
}

func TestHTTP_OtherOriginsGetNoHeadersOfTheRequest(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 10)
	var home *httptest.Server
	away := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		if r.URL.Path == "/back" {
			http.Redirect(w, r, home.URL+"/end", http.StatusTemporaryRedirect)
		}
	})
	home = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, away.URL+"/end", http.StatusTemporaryRedirect)
		case "/back":
			http.Redirect(w, r, away.URL+"/back", http.StatusTemporaryRedirect)
		case "/end":
			seen <- r.Header
		}
	})
	k := newTestHTTP(t, "127.0.0.1")
	last := func(path string, requests int) http.Header {
		input := `{"url":"` + home.URL + path + `?secret=1","headers":{"X-Api-Key":"k","Authorization":"a","Cookie":"c","Accept":"x/y"},"body":{"a":1}}`
		if _, err := k.exchange(t.Context(), json.RawMessage(input), testKey); err != nil {
			t.Fatal(err)
		}
		var h http.Header
		for range requests {
			h = <-seen
		}
		return h
	}
	if h := last("/same", 1); h.Get("X-Api-Key") != "k" || h.Get("Authorization") != "a" || h.Get("Idempotency-Key") != testKey {
		t.Errorf("same origin: headers %v", h)
	}
	for path, requests := range map[string]int{"/away": 1, "/back": 2} {
		h := last(path, requests)
		for _, name := range []string{"X-Api-Key", "Authorization", "Cookie", "Referer"} {
			if v := h.Get(name); v != "" {
				t.Errorf("%s: header %s is %q at another origin", path, name, v)
			}
		}
		if h.Get("Idempotency-Key") != testKey || h.Get("Accept") != "x/y" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestSameOrigin_EncryptedFormOfTheSameHostCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		first, next string
		want        bool
	}{
		{"http://a/x", "http://a/y", true},
		{"http://a", "https://a", true},
		{"http://a:80", "https://a:443", true},
		{"https://a", "http://a", false},
		{"http://a", "https://b", false},
		{"http://a", "https://a:8443", false},
		{"http://a:8080", "https://a", false},
		{"http://a", "http://sub.a", false},
	} {
		first, _ := url.Parse(tc.first)
		next, _ := url.Parse(tc.next)
		if got := sameOrigin(first, next); got != tc.want {
			t.Errorf("%s and %s: %t", tc.first, tc.next, got)
		}
	}
}

func TestHTTP_UnknownCertificateIsPermanent(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	k := newTestHTTP(t, "127.0.0.1")
	_, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+`"}`), testKey)
	wantFailure(t, err, "tls", true, "certificate")
	k.client.Transport.(*boundTransport).TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := k.exchange(t.Context(), json.RawMessage(`{"url":"`+srv.URL+`"}`), testKey); err != nil {
		t.Errorf("with its certificate known: %v", err)
	}
}
