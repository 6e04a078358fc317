package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programEnv makes the test program behave as pgexec, so that tests, and the
// demo itself, can start it as other processes. The demo's own get no variable of pgexec's.
const programEnv = "TEST_AS_PGEXEC"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
	}
	if os.Getenv(mcpEnv) != "" {
		serveMCP()
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "PGEXEC_") || strings.HasPrefix(name, "PGEXEC_TEST_") {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// outcomeOf is what one execution of the program said.
type outcomeOf struct {
	code     int
	out, err string
}

// invoke runs the program in this process.
func invoke(t *testing.T, args ...string) outcomeOf {
	t.Helper()
	return invokeWith(t, "", args...)
}

func invokeWith(t *testing.T, stdin string, args ...string) outcomeOf {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(newInterrupt(t.Context()), args, stdio{in: strings.NewReader(stdin), out: &out, err: &errs})
	return outcomeOf{code, out.String(), errs.String()}
}

// mustInvoke is invoke of what has to succeed; it returns standard output.
func mustInvoke(t *testing.T, args ...string) string {
	t.Helper()
	got := invoke(t, args...)
	if got.code != exitOK {
		t.Fatalf("pgexec %s: exit code %d: %s", strings.Join(args, " "), got.code, got.err)
	}
	return got.out
}

// process is the program as another process. Its standard output and standard
// error are read as one.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}

	mu   sync.Mutex
	said []string
	more chan struct{}
}

// start starts the program; the test's end kills it.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self, args...), ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), programEnv+"=1"), env...)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	go p.listen(reader)
	t.Cleanup(func() {
		// An error says that it has ended already.
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("pgexec %s said:\n%s", strings.Join(args, " "), p.text())
		}
	})
	return p
}

func (p *process) listen(r io.ReadCloser) {
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		p.mu.Lock()
		p.said = append(p.said, scan.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // the exit code is what counts
	r.Close()
	close(p.ended)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.said, "\n")
}

// line waits for a line that holds the words, and returns it.
func (p *process) line(words string) string {
	p.t.Helper()
	late := time.After(patience)
	for seen := 0; ; {
		p.mu.Lock()
		lines, more := p.said[seen:], p.more
		p.mu.Unlock()
		for _, line := range lines {
			if strings.Contains(line, words) {
				return line
			}
		}
		seen += len(lines)
		select {
		case <-more:
		case <-p.ended:
			if !strings.Contains(p.text(), words) {
				p.t.Fatalf("ended with %s and did not say %q", p.cmd.ProcessState, words)
			}
		case <-late:
			p.t.Fatalf("did not say %q in time", words)
		}
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// patience bounds the wait for anything that has to happen; promptly is shorter than any
// time that the program itself might wait for: its grace is 25 s.
const patience, promptly = time.Minute, 20 * time.Second

// exit waits for the end and returns the exit code, -1 after a signal that was not caught.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("did not end within %s", limit)
		return 0
	}
}

// within waits for a state that nothing announces.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}
