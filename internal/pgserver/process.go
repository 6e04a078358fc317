package pgserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is who runs the server's programs; nil means the caller.
type account struct {
	uid, gid uint32
}

// serverAccount is the caller, or, since the server refuses to run as root, the
// user postgres, else nobody.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read uid of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read gid of %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("choose a user for the server: root may not run it, and neither postgres nor nobody exists")
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// command prepares a program of the server: in a session of its own, so that a
// terminal's Ctrl-C reaches only the caller, who then stops things in order.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(withoutLibpq(os.Environ()), "LC_ALL=C", "HOME="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.account != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.account.uid, Gid: s.account.gid}
	}
	return cmd
}

// withoutLibpq drops PG* variables: they would redirect the server's own tools.
func withoutLibpq(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, e := range env {
		if !strings.HasPrefix(e, "PG") || strings.HasPrefix(e, "PGEXEC") {
			kept = append(kept, e)
		}
	}
	return kept
}

func (s *Server) run(ctx context.Context, program string, args ...string) error {
	out, err := s.command(ctx, filepath.Join(s.binDir, program), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// tetherScript waits for the end of its input. Only the process that started the
// server holds the other end, so the end comes also when that process is killed;
// then the server is stopped (SIGQUIT is its immediate shutdown) and its directory
// removed, unless told to keep them. It tries for a while: initdb or a starting
// server may still be at work in the directory.
const tetherScript = `read -r word
[ "$word" = keep ] && exit 0
cd /
tries=0
while [ "$tries" -lt 200 ]; do
  tries=$((tries + 1))
  pid=$(sed -n 1p "$1/data/postmaster.pid" 2>/dev/null)
  if [ -n "$pid" ] && kill -QUIT "$pid" 2>/dev/null; then
    sleep 0.1
    [ "$tries" -lt 100 ] && continue
  fi
  rm -rf "$1" && exit 0
  sleep 0.1
done`

// tether is the process that cleans up after a starter that dies.
type tether struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (s *Server) startTether() (*tether, error) {
	// Not bound to a context: it has to outlive everything else here.
	cmd := s.command(context.Background(), "/bin/sh", "-c", tetherScript, "sh", s.dir)
	cmd.SysProcAttr.Credential = nil // the directory's parent may be the caller's alone
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start tether: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start tether: %w", err)
	}
	return &tether{cmd: cmd, stdin: stdin}, nil
}

// release ends the tether without an effect on server and directory.
func (t *tether) release() error {
	if _, err := io.WriteString(t.stdin, "keep\n"); err != nil {
		return fmt.Errorf("release tether: %w", err)
	}
	if err := t.stdin.Close(); err != nil {
		return fmt.Errorf("release tether: %w", err)
	}
	return t.cmd.Wait()
}
