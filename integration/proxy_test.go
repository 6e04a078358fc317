package integration

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP connections to a server that can be changed.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string // empty: connections are refused
	open   map[net.Conn]struct{}
	// accepted counts connections, those that were refused then included.
	accepted int
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, open: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.pointTo("")
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// pointTo cuts all connections; new ones go to target.
func (p *proxy) pointTo(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for conn := range p.open {
		conn.Close()
	}
}

// count returns how many connections there were so far.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.forward(client) })
	}
}

func (p *proxy) forward(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	p.accepted++
	target := p.target
	p.mu.Unlock()
	if target == "" {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(target, client, server) {
		return
	}
	defer p.drop(client, server)
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			// However one direction ends, the other ends with it.
			_, _ = io.Copy(pair[0], pair[1])
			client.Close()
			server.Close()
		})
	}
	both.Wait()
}

// keep notes a pair of connections, unless the target has changed meanwhile.
func (p *proxy) keep(target string, conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.target != target {
		return false
	}
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	return true
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}
