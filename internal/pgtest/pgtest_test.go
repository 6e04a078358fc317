package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.RunChild(map[string]func(){
		"talker": func() {
			for i := range 3 {
				fmt.Println("line", i)
			}
			select {}
		},
		"quitter": func() { os.Exit(7) },
		"user": func() {
			url, pid, err := pgtest.Lease()
			fmt.Println("server", url, pid, err)
			select {}
		},
	})
	os.Exit(m.Run())
}

func one[T any](t *testing.T, pool *pgxpool.Pool, sql string) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// C32: no session of a test runs in UTC.
func TestDB_MigratedAndPrivate(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if got := one[string](t, pool, "show timezone"); got != "Asia/Kathmandu" {
		t.Errorf("time zone is %s", got)
	}
	if got := one[int](t, pool, "select count(*) from pgexec.runs"); got != 0 {
		t.Errorf("%d runs in a new database", got)
	}
	one[string](t, pool, "insert into pgexec.runs (kind) values ('x') returning run_id::text")
	if again := pgtest.DB(t); again != pool {
		t.Error("a second call in the same test gives another database")
	}
	t.Run("subtest", func(t *testing.T) {
		if got := one[int](t, pgtest.DB(t), "select count(*) from pgexec.runs"); got != 0 {
			t.Error("a subtest sees the rows of its parent")
		}
	})
	for _, url := range []string{pgtest.URL(t), pgtest.TCPURL(t)} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var runs int
		if err := conn.QueryRow(t.Context(), "select count(*) from pgexec.runs").Scan(&runs); err != nil || runs != 1 {
			t.Errorf("%s shows %d runs, %v: not the test's database", url, runs, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestEmptyDB_HasNoSchema(t *testing.T) {
	t.Parallel()
	if one[bool](t, pgtest.EmptyDB(t), "select to_regnamespace('pgexec') is not null") {
		t.Error("the schema pgexec is there")
	}
}

func TestDBOn_MigratesOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, pgserver.Config{})
	pool := pgtest.DBOn(t, s)
	if err := s.Restart(t.Context(), pgserver.Immediate); err != nil {
		t.Fatal(err)
	}
	// Connections of before the restart are found broken, one by one.
	deadline := time.Now().Add(time.Minute)
	for {
		var runs int
		err := pool.QueryRow(t.Context(), "select count(*) from pgexec.runs").Scan(&runs)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestChild_TalksAndIsKilled(t *testing.T) {
	t.Parallel()
	c := pgtest.StartChild(t, "talker")
	if got := c.Line("line 1", time.Minute); got != "line 1" {
		t.Errorf("got %q", got)
	}
	c.Kill()
	if !errors.Is(syscall.Kill(c.PID(), 0), syscall.ESRCH) {
		t.Error("the child lives")
	}
	if code := pgtest.StartChild(t, "quitter").Wait(time.Minute); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}

// inner runs the named test of this program, which is skipped otherwise, as
// another `go test` would, and returns what it printed.
func inner(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), "PGEXEC_PGTEST_INNER=1"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func isInner(t *testing.T) {
	t.Helper()
	if os.Getenv("PGEXEC_PGTEST_INNER") == "" {
		t.Skip("run by another test")
	}
}

func TestInner_Passes(t *testing.T) {
	isInner(t)
	t.Log("url", pgtest.URL(t), "end")
}

func TestInner_Fails(t *testing.T) {
	isInner(t)
	t.Log("url", pgtest.URL(t), "end")
	t.Fail()
}

func urlIn(t *testing.T, output string) string {
	t.Helper()
	_, rest, _ := strings.Cut(output, "url ")
	url, _, found := strings.Cut(rest, " end")
	if !found {
		t.Fatalf("no URL in:\n%s", output)
	}
	return url
}

func reachable(t *testing.T, url string) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return false
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	return true
}

func TestDB_DroppedOnPassKeptOnFailure(t *testing.T) {
	t.Parallel()
	admin := pgtest.EmptyDB(t) // holds the server while we look, or skips
	out, err := inner(t, "TestInner_Passes")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if url := urlIn(t, out); reachable(t, url) {
		t.Errorf("%s is still there after its test has passed", url)
	}
	// As a given server: the shared one would stay longer for the kept database.
	out, err = inner(t, "TestInner_Fails", "PGEXEC_TEST_DATABASE_URL="+admin.Config().ConnString())
	if err == nil {
		t.Fatal("the failing test has passed")
	}
	url := urlIn(t, out)
	if !strings.Contains(out, "psql '"+url+"'") {
		t.Errorf("the address of the kept database is not in the log:\n%s", out)
	}
	if !reachable(t, url) {
		t.Errorf("%s is gone although its test has failed", url)
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "drop database "+pgx.Identifier{cfg.Database}.Sanitize()+" with (force)"); err != nil {
		t.Fatal(err)
	}
}

// Several programs start at once; all are killed.
func TestServer_SharedAndEndsWithItsUsers(t *testing.T) {
	t.Parallel()
	pgtest.EmptyDB(t) // skips where there is no server
	state := t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"PGEXEC_TEST_DATABASE_URL=", "PGEXEC_TEST_STATE_DIR=" + state, "PGEXEC_TEST_IDLE=1s"}
	users := make([]*pgtest.Child, 4)
	for i := range users {
		users[i] = pgtest.StartChild(t, "user", env...)
	}
	var url, said string
	var keeper int
	for i, user := range users {
		line := user.Line("server ", time.Minute)
		if i > 0 && line != said {
			t.Fatalf("two servers: %q and %q", said, line)
		}
		said = line
	}
	if _, err := fmt.Sscanf(said, "server %s %d <nil>", &url, &keeper); err != nil {
		t.Fatalf("%q: %v", said, err)
	}
	for _, user := range users[1:] {
		user.Kill()
	}
	// One user is left: the server stays, also when it is asked to end.
	if err := syscall.Kill(keeper, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if !reachable(t, url) {
		t.Fatal("the server has ended under its last user")
	}
	users[0].Kill()
	deadline := time.Now().Add(time.Minute)
	for !errors.Is(syscall.Kill(keeper, 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			t.Fatal("the server's keeper outlives its users")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if reachable(t, url) {
		t.Error("the server outlives its keeper")
	}
}
