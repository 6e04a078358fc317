package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
)

// demoLimit is far more than a demo takes, however busy the machine is.
const demoLimit = 4 * time.Minute

// startDemo starts a demo whose temporary files are in a folder of their own. It
// needs the server's programs.
func startDemo(t *testing.T, args ...string) (p *process, tmp string) {
	t.Helper()
	if _, err := pgserver.FindBinDir(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// Not t.TempDir: its name is too long for a socket's path, and a server that runs as
	// another user, because this one is root, can do nothing in it.
	tmp, err := os.MkdirTemp("", "pgexec-demo-")
	if err == nil {
		err = os.Chmod(tmp, 0o777|os.ModeSticky)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(tmp); err != nil {
			t.Error(err)
		}
	})
	return start(t, []string{"TMPDIR=" + tmp}, append([]string{"demo"}, args...)...), tmp
}

// The first command of a newcomer: all runs survive a kill and a drain, and each
// node is recorded once (G1, G2), says a query.
func TestDemo_RunsSurviveKillAndDrain(t *testing.T) {
	t.Parallel()
	p, tmp := startDemo(t)
	if code := p.exit(demoLimit); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	said := p.text()
	for _, pattern := range []string{
		`kill -9 to replica [ABC], which has [1-9]\d* runs at work`,
		`goes on with \S+, \d+ ms after the death of`,
		`SIGTERM to replica [ABC], which has [1-9]\d* runs at work`,
		`replica [ABC] has drained and ended with exit code 0`,
		`pgexec.approve\('report-\d+', 'approval-3-1'\)`,
		`(?m)^ writer  \| succeeded \|   12 \|`,
		`(?m)^ checker \| succeeded \|   12 \|`,
		`(?m)^ \S+ +\| [ABC] +\| [ABC]  \| SIGKILL \| +\d+ \| +\d+ \| +\d+$`,
		`(?m)^ \S+ +\| [ABC] +\| [ABC]  \| SIGTERM \| +\d+ \| +\d+ \| +\d+$`,
		`(?m)^   24 \|   252 \|          0 \|    0$`,
		`All 252 nodes are recorded exactly once`,
	} {
		if !regexp.MustCompile(pattern).MatchString(said) {
			t.Errorf("the output lacks %s", pattern)
		}
	}
	for _, line := range p.said {
		line = strings.ReplaceAll(line, p.cmd.Path, "bin/pgexec") // as a user calls it
		if n := len([]rune(line)); n > 80 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	checkEmpty(t, tmp)
}

// children returns the process ids below that of pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// servers returns the process ids of the database servers that have their data below a folder.
func servers(t *testing.T, tmp string) []int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tmp, "*", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		first, _, _ := strings.Cut(string(raw), "\n")
		pid, convErr := strconv.Atoi(strings.TrimSpace(first))
		if err != nil || convErr != nil {
			t.Fatal(err, convErr)
		}
		pids = append(pids, pid)
	}
	return pids
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func empty(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if !empty(t, dir) {
		entries, err := os.ReadDir(dir)
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// Whenever the demo is interrupted, its replicas, its server and its folder are
// gone when it ends.
func TestDemo_InterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after string // a line of the demo
		sig   syscall.Signal
		code  int
	}{
		"Ctrl-C at its beginning":  {"pgexec demo:", syscall.SIGINT, 130},
		"Ctrl-C with a server":     {"database ", syscall.SIGINT, 130},
		"SIGTERM before the kill":  {"runs ", syscall.SIGTERM, 143},
		"Ctrl-C after the kill":    {"kill -9 to replica", syscall.SIGINT, 130},
		"hang-up during the drain": {"SIGTERM to replica", syscall.SIGHUP, 129},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(c.sig) {
				t.Skip("the tests were started with this signal ignored, and so is what they start")
			}
			p, tmp := startDemo(t)
			p.line(c.after)
			pids := append(children(t, p.cmd.Process.Pid), servers(t, tmp)...)
			p.signal(c.sig)
			p.signal(c.sig) // an impatient second one cuts nothing short
			if code := p.exit(patience); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			checkEmpty(t, tmp)
			for _, pid := range pids {
				// A process that has ended is there until its parent takes note.
				within(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
			}
		})
	}
}

// A demo that is killed takes its replicas, its server and its folder with it.
func TestDemo_KilledDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	p, tmp := startDemo(t)
	p.line("kill -9 to replica")
	pids := append(children(t, p.cmd.Process.Pid), servers(t, tmp)...)
	if len(pids) < 4 {
		t.Fatalf("processes %v: want two replicas, a tether and a server at least", pids)
	}
	p.signal(syscall.SIGKILL)
	p.exit(patience)
	for _, pid := range pids {
		within(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
	}
	within(t, "the folder is gone", func() bool { return empty(t, tmp) })
}

// On a server that somebody names, the demo makes and removes a database of its own.
func TestDemo_OnANamedServer(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	server := pgtest.URL(t)
	demos := func() (names []string) {
		t.Helper()
		rows, err := pool.Query(t.Context(), "select datname from pg_database where datname like 'pgexec\\_demo\\_%'")
		if err != nil {
			t.Fatal(err)
		}
		if names, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
		return names
	}
	p := start(t, []string{"PGEXEC_DATABASE_URL=" + server}, "demo", "--keep")
	name := regexp.MustCompile(`pgexec_demo_[0-9a-f]+`).FindString(p.line("database "))
	if code := p.exit(demoLimit); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	if len(demos()) != 1 || demos()[0] != name || !strings.Contains(p.text(), "drop database "+name+" with (force)") {
		t.Errorf("--keep has left %v, want %s", demos(), name)
	}
	if _, err := pool.Exec(t.Context(), "drop database "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		t.Fatal(err)
	}

	p = start(t, []string{"PGEXEC_DATABASE_URL=" + server}, "demo")
	p.line("runs ")
	p.signal(syscall.SIGTERM)
	if code := p.exit(patience); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if left := demos(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A database that was kept can be opened, used and removed as the demo says.
func TestDemo_Keep(t *testing.T) {
	t.Parallel()
	p, tmp := startDemo(t, "--keep")
	if code := p.exit(demoLimit); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	_, address, _ := strings.Cut(strings.TrimSuffix(p.line("run a replica:"), "'"), "'")
	if _, err := url.Parse(address); err != nil {
		t.Fatal(err)
	}
	if out := mustInvoke(t, "run", "ls", "--database-url", address); strings.Count(out, "succeeded") < 12 {
		t.Errorf("the kept runs: %s", out)
	}
	pids := servers(t, tmp)
	_, remove, _ := strings.Cut(p.line("remove it:"), "remove it:")
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", remove).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", remove, err, out)
	}
	checkEmpty(t, tmp)
	for _, pid := range pids {
		within(t, "the server ends", func() bool { return gone(pid) })
	}
}

// Without rights on the named server the demo says which are missing.
func TestDemo_RoleMayNotCreateDatabases(t *testing.T) {
	t.Parallel()
	server, pool := strict(t)
	got := invoke(t, "demo", "--database-url", as(t, server.TCPURL(pool.Config().ConnConfig.Database), "app", secret, ""))
	if got.code != exitFailure {
		t.Errorf("exit code %d, want %d", got.code, exitFailure)
	}
	checkWords(t, got, `role "app"`, "alter role app createdb", "leave the database URL out")
}
