package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a replica: a child that runs `pgexec serve`.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  tail
	// ended is closed when the child has ended; its state may be read then.
	ended chan struct{}
}

// startReplica starts a replica that does not outlive the demo: it ends when its
// standard input does, which comes also with a demo that is killed. It has a
// process group of its own, so that a terminal's Ctrl-C reaches the demo alone.
func startReplica(program, name, databaseURL, allow string) (*process, error) {
	p := &process{name: name, ended: make(chan struct{})}
	p.cmd = exec.Command(program, "serve", "--http", "off", "--lifeline", "--log-level", "warn")
	p.cmd.Env = append(withoutOurs(os.Environ()), "PGEXEC_DATABASE_URL="+databaseURL, "PGEXEC_HTTP_ALLOW="+allow)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.said
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start replica %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // what it says is in the state
	}()
	return p, nil
}

// withoutOurs drops the variables that are about replicas of the user's own: their databases, stores, roles, tokens.
func withoutOurs(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, e := range env {
		if !strings.HasPrefix(e, "PGEXEC_") {
			kept = append(kept, e)
		}
	}
	return kept
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %s to replica %s: %w", sig, p.name, err)
	}
	return nil
}

// drain asks the process to end in order, and waits for that only so long.
func (p *process) drain(limit time.Duration) {
	if p.signal(syscall.SIGTERM) != nil {
		return // it has ended already
	}
	select {
	case <-p.ended:
	case <-time.After(limit):
	}
}

// end kills the process, if it is still there, and waits for it.
func (p *process) end() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	_ = p.stdin.Close() // the other end has gone
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// failure says why a replica that nobody stopped has ended.
func (p *process) failure() error {
	return fmt.Errorf("replica %s (pid %d) has ended: %s\n%s", p.name, p.pid(), p.cmd.ProcessState, p.said.text())
}

// tail keeps the end of what a child wrote, for the case that it fails.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
