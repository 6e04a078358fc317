package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgserver"
)

const childEnv = "PGEXEC_PGSERVER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		startAndWait()
	}
	os.Exit(m.Run())
}

// startAndWait is the child of TestStart_KilledStarterLeavesNothing.
func startAndWait() {
	s, err := pgserver.Start(context.Background(), pgserver.Config{Dir: os.Getenv(childEnv)})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	pid, err := s.PID()
	fmt.Println(s.Dir(), pid, err)
	select {}
}

func start(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	t.Parallel()
	s, err := pgserver.Start(t.Context(), cfg)
	var missing *pgserver.NotFoundError
	if errors.As(err, &missing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query runs a statement on a connection of its own.
func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	var value T
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// within waits for a state of the operating system that nothing announces.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	const limit = time.Minute
	deadline := time.Now().Add(limit)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func removed(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestStart_SettingsAndBothAddresses(t *testing.T) {
	s := start(t, pgserver.Config{TCP: true, Settings: map[string]string{"work_mem": "5MB", "max_connections": "17"}})
	for _, url := range []string{s.URL("postgres"), s.TCPURL("postgres")} {
		if got := query[string](t, url, "show work_mem"); got != "5MB" {
			t.Errorf("work_mem over %s is %s, want 5MB", url, got)
		}
	}
	if got := query[string](t, s.URL("postgres"), "show max_connections"); got != "17" {
		t.Errorf("max_connections is %s: a given setting must win over the package's own", got)
	}
	if got := query[string](t, s.URL("postgres"), "show wal_level"); got != "logical" {
		t.Errorf("wal_level is %s, want logical", got)
	}
}

func TestStop_RemovesEverything(t *testing.T) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("pgserver-own-dir-%d", os.Getpid()))
	s := start(t, pgserver.Config{Dir: dir})
	pid, err := s.PID()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !removed(dir) {
		t.Errorf("%s is left behind", dir)
	}
	within(t, "server gone", func() bool { return gone(pid) })
	if err := s.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStart_KilledStarterLeavesNothing(t *testing.T) {
	start(t, pgserver.Config{}) // skips where there is no server
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Where only this user may remove it, which may be another than the server's.
	parent, err := os.MkdirTemp("", "pgserver-")
	if err == nil {
		err = os.Chmod(parent, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	child := exec.Command(self)
	child.Env = append(os.Environ(), childEnv+"="+filepath.Join(parent, "server"))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var dir, note string
	var pid int
	if _, scanErr := fmt.Sscan(line, &dir, &pid, &note); err != nil || scanErr != nil {
		t.Fatalf("child said %q: %v %v", line, err, scanErr)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed, which is what it reports
	within(t, "server gone", func() bool { return gone(pid) })
	within(t, "directory removed", func() bool { return removed(dir) })
}

func TestKeep_LeavesTheServerUp(t *testing.T) {
	s := start(t, pgserver.Config{})
	if err := s.Keep(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background(), pgserver.Immediate); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(s.Dir()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, s.URL("postgres"), "select 1"); got != 1 {
		t.Errorf("got %d", got)
	}
}

func TestRestart_KeepsDataAndAddress(t *testing.T) {
	s := start(t, pgserver.Config{TCP: true})
	url, tcp := s.URL("postgres"), s.TCPURL("postgres")
	for i, mode := range []pgserver.Mode{pgserver.Fast, pgserver.Immediate} {
		exec1(t, url, fmt.Sprintf("create table t%d ()", i))
		if err := s.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		for _, u := range []string{url, tcp} {
			if got := query[int](t, u, "select count(*) from pg_tables where schemaname = 'public'"); got != i+1 {
				t.Errorf("%d tables after a %s restart, want %d", got, mode, i+1)
			}
		}
	}
}

func TestStandby_FollowsAndIsPromoted(t *testing.T) {
	primary := start(t, pgserver.Config{})
	exec1(t, primary.URL("postgres"), "create table before ()")
	standby, err := primary.Standby(t.Context(), pgserver.Config{Settings: map[string]string{"cluster_name": "second"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	exec1(t, primary.URL("postgres"), "create table after ()")
	within(t, "second table on the standby", func() bool {
		return query[int](t, standby.URL("postgres"), "select count(*) from pg_tables where schemaname = 'public'") == 2
	})
	if got := query[string](t, primary.URL("postgres"), "select application_name from pg_stat_replication"); got != "second" {
		t.Errorf("the primary sees standby %q", got)
	}
	if err := primary.Shutdown(t.Context(), pgserver.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec1(t, standby.URL("postgres"), "create table promoted ()")
}

func TestFindBinDir_ErrorSaysWhatToInstall(t *testing.T) {
	err := error(&pgserver.NotFoundError{Searched: []string{"PATH", "/opt/nowhere"}})
	for _, want := range []string{"/opt/nowhere", "install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}
