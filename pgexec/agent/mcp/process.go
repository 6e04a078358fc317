package mcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is a stdio server, in a process group of its own.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	// exited is closed when the process and its group are gone, heard when its stderr is.
	exited chan struct{}
	heard  chan struct{}
	// err is how it ended, to be read after exited.
	err error
}

// startProcess starts a server's command, and listens to what it says to stderr.
func startProcess(server Server, said *talk) (*process, error) {
	p := &process{
		cmd:    exec.Command(server.Command[0], server.Command[1:]...),
		exited: make(chan struct{}),
		heard:  make(chan struct{}),
	}
	p.cmd.Env = append(plainEnv(), server.Env...)
	setGroup(p.cmd)
	theirs, err := p.pipes()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.run(started)
	err = <-started
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		p.closePipes()
		return nil, err
	}
	go func() {
		defer close(p.heard)
		said.listen(p.stderr)
	}()
	return p, nil
}

// pipes makes both ends of the process's three files and returns those that are its own.
func (p *process) pipes() (theirs []*os.File, err error) {
	var ours [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range slices.Concat(ours[:i], theirs) {
				f.Close()
			}
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		if i == 0 {
			ours[i], theirs = w, append(theirs, r)
		} else {
			ours[i], theirs = r, append(theirs, w)
		}
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

// run starts the process and waits for its end, on one thread: the kernel takes
// the thread's end for the replica's where the process is to die with it.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	// Its children have no server to serve any more.
	p.signal(syscall.SIGKILL)
	close(p.exited)
}

// stop ends the process the way the protocol wants it: stdin is closed, then it is
// asked to end, then it and all of its group are killed. It returns when the
// process is gone.
func (p *process) stop(grace time.Duration) {
	p.stdin.Close()
	if !within(grace, p.exited) {
		p.signal(syscall.SIGTERM)
		if !within(grace, p.exited) {
			p.signal(syscall.SIGKILL)
			<-p.exited
		}
	}
	within(grace, p.heard)
	p.closePipes()
	<-p.heard
}

// signal is for the process and all that it started. It does nothing to a group that is gone.
func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}

// ended says how the process ended, or nil while it runs.
func (p *process) ended() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	if p.err == nil {
		return errors.New("the process ended")
	}
	return fmt.Errorf("the process ended: %w", p.err)
}

// plainNames are the variables of the replica that a server may see. The others
// may hold secrets that are none of its business.
var plainNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "TMP", "TEMP",
	"SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "COMSPEC",
}

func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(env string) bool {
		name, _, _ := strings.Cut(env, "=")
		return !slices.Contains(plainNames, strings.ToUpper(name))
	})
}
