package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const childEnv = "PGEXEC_TEST_CHILD"

// RunChild is the first call of a TestMain whose tests start children: in a
// child it runs the named function and ends the process, elsewhere it returns.
func RunChild(children map[string]func()) {
	name := os.Getenv(childEnv)
	if name == "" {
		return
	}
	f, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no child %q in this test program\n", name)
		os.Exit(2)
	}
	f()
	os.Exit(0)
}

// Child is another process of this test program, which may be killed.
type Child struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	lines []string      // said and not yet read by Line
	more  chan struct{} // closed and made anew with each line
}

// StartChild starts the function that RunChild knows by that name, with more
// variables in its environment ("NAME=value"). What it writes to standard
// error goes to the test's log. The test's end kills it.
func StartChild(t testing.TB, name string, env ...string) *Child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("start child: %v", err)
	}
	c := &Child{t: t, cmd: exec.Command(self), more: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(append(os.Environ(), childEnv+"="+name), env...)
	c.cmd.Stderr = t.Output()
	c.cmd.SysProcAttr = childAttr()
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("start child: %v", err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start child: %v", err)
	}
	go c.listen(out)
	t.Cleanup(func() {
		// An error says that it has ended already.
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// listen never blocks on the reader of the lines, so the child does not either.
func (c *Child) listen(out io.Reader) {
	defer close(c.ended)
	scan := bufio.NewScanner(out)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		c.mu.Lock()
		c.lines = append(c.lines, scan.Text())
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
	}
	_ = c.cmd.Wait() // a killed child reports only that
}

// next takes the first line with that prefix and those before it.
func (c *Child) next(prefix string) (line string, ok bool, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, line := range c.lines {
		if strings.HasPrefix(line, prefix) {
			c.lines = c.lines[i+1:]
			return line, true, nil
		}
	}
	return "", false, c.more
}

// Line returns the next line of the child's standard output that begins with
// prefix, passing over others, and fails the test if there is none in time.
func (c *Child) Line(prefix string, limit time.Duration) string {
	c.t.Helper()
	late := time.After(limit)
	for {
		line, ok, more := c.next(prefix)
		if ok {
			return line
		}
		select {
		case <-more:
		case <-c.ended:
			if line, ok, _ := c.next(prefix); ok {
				return line
			}
			c.t.Fatalf("child ended before it said %q", prefix)
		case <-late:
			c.t.Fatalf("child did not say %q within %s", prefix, limit)
		}
	}
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Signal sends a signal: SIGTERM, SIGSTOP, SIGCONT.
func (c *Child) Signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("signal child: %v", err)
	}
}

// Kill sends SIGKILL and returns when the process is gone. One that has ended
// already is gone as well.
func (c *Child) Kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatalf("kill child: %v", err)
	}
	c.Wait(time.Minute)
}

// Wait returns the exit code, -1 for a child that a signal has ended, and fails
// the test if the child does not end in time.
func (c *Child) Wait(limit time.Duration) int {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		c.t.Fatalf("child did not end within %s", limit)
		return 0
	}
}
