package tool

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pgexec/runtime/pgexec/kinds"
)

// hostList is what a definition narrows its tools to: hosts, and with a dot in
// front all below one, each on every port or on one.
type hostList []string

// check returns an error if a URL is of none of the hosts.
func (l hostList) check(u *url.URL) error {
	for _, entry := range l {
		host, port, _ := strings.Cut(strings.ToLower(entry), ":")
		if strings.HasPrefix(entry, "[") { // IPv6
			host, port, _ = strings.Cut(strings.ToLower(entry[1:]), "]")
			port = strings.TrimPrefix(port, ":")
		}
		if (port == "" || port == portOf(u)) && matches(host, strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))) {
			return nil
		}
	}
	return fmt.Errorf("%w: http_allow of this agent's definition does not have %s", kinds.ErrAddressRefused, u.Host)
}

func matches(entry, host string) bool {
	if strings.HasPrefix(entry, ".") {
		return strings.HasSuffix(host, entry)
	}
	return host == entry
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// narrowTransport sends requests to some hosts only, those of redirects included.
type narrowTransport struct {
	base  http.RoundTripper
	hosts hostList
}

func (t *narrowTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.hosts.check(req.URL); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return t.base.RoundTrip(req)
}

// client is the replica's HTTP client, narrowed to the hosts of a definition; nil
// leaves it as it is. It is the same one for the same hosts: sessions depend on it.
func (env *Env) client(hosts []string) *http.Client {
	if hosts == nil {
		return env.Stock.Client()
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	key := strings.Join(hosts, " ")
	if env.narrowed[key] == nil {
		client := *env.Stock.Client()
		client.Transport = &narrowTransport{base: client.Transport, hosts: hosts}
		if env.narrowed == nil {
			env.narrowed = make(map[string]*http.Client)
		}
		env.narrowed[key] = &client
	}
	return env.narrowed[key]
}
