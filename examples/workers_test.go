// Package examples_test runs the example workers against a replica of this process.
package examples_test

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/kinds"
)

const patience = time.Minute

// missing skips the test where a program is not installed; where CI has to have it, it fails.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing", what)
	}
	t.Skipf("%s is missing", what)
}

// python finds an interpreter that has psycopg 3.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import psycopg").Run() == nil {
			return name
		}
	}
	missing(t, "a python3 with psycopg 3 (Debian: python3-psycopg)")
	return ""
}

// startWorker starts a worker program and returns, when it serves, what ends it as SIGTERM does.
func startWorker(t *testing.T, pool *pgxpool.Pool, kind string, command []string, env ...string) (stop func()) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `select pgexec.declare_kind($1)`, kind); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "DATABASE_URL="+pgtest.URL(t)), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error says that it has ended
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(said, "serves "+kind) {
		t.Fatalf("the worker says %q, %v", said, err)
	}
	go func() { ended <- cmd.Wait() }()
	return func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the worker ends with %v", err)
			}
		case <-time.After(patience):
			t.Error("the worker does not end")
		}
	}
}

// serve runs a replica with the stock kinds until the test ends.
func serve(t *testing.T) *pgxpool.Pool {
	t.Helper()
	t.Parallel()
	pool := pgtest.DB(t)
	set := pgexec.NewKinds()
	stock, err := kinds.Add(set, nil)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := pgexec.New(pool, &pgexec.Config{Kinds: set, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		stock.Close()
	})
	return pool
}

// run inserts a run and returns how it ended: its status and its result or error.
func run(t *testing.T, pool *pgxpool.Pool, kind, input string) string {
	t.Helper()
	var id pgexec.RunID
	if err := pool.QueryRow(t.Context(), `insert into pgexec.runs (kind, input) values ($1, $2) returning run_id`, kind, input).Scan(&id); err != nil {
		t.Fatal(err)
	}
	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended, err := client.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(ended.Status)+" "+string(ended.Result)+ended.Error, id.String(), "RUN_ID")
}

func check(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("run has %s, want %s", got, want)
	}
}

// The Python worker does nodes of a graph, says what it cannot do, keeps its lease for as long as it works, and ends
// when it is asked to.
func TestWorkerPython(t *testing.T) {
	interpreter := python(t)
	pool := serve(t)
	stop := startWorker(t, pool, "wordcount", []string{interpreter, "worker-python/worker.py"}, "LEASE_SECONDS=3")
	check(t, run(t, pool, "graph", `{"nodes": [
		{"id": "count", "kind": "wordcount", "input": {"text": "to be or not to be"}},
		{"id": "again", "kind": "wordcount", "after": ["count"], "input": {"text": {"$ref": "count#/key"}, "seconds": 5}}]}`),
		`succeeded {"words": 1, "key": "RUN_ID/again"}`)
	check(t, run(t, pool, "wordcount", `{"words": 6}`), `failed node root: the input has no "text"`)
	var deliveries int
	if err := pool.QueryRow(t.Context(), `select count(*) from pgexec.nodes where attempt > 1`).Scan(&deliveries); err != nil || deliveries != 0 {
		t.Errorf("%d nodes were tried again, error %v", deliveries, err)
	}
	var spent string
	err := pool.QueryRow(t.Context(), `select concat_ws(' ', input_tokens, cost_usd) from pgexec.run_overview where kind = 'graph'`).Scan(&spent)
	if want := "7 0.000007"; err != nil || spent != want {
		t.Errorf("the run has spent %s, error %v; want %s", spent, err, want)
	}
	stop()
}

// The psql worker likewise.
func TestWorkerPSQL(t *testing.T) {
	if _, err := exec.LookPath("psql"); err != nil {
		missing(t, "psql")
	}
	pool := serve(t)
	stop := startWorker(t, pool, "shout", []string{"/bin/sh", "worker-psql/worker.sh"})
	check(t, run(t, pool, "shout", `{"text": "it's \"here\""}`), `succeeded "IT'S \"HERE\""`)
	check(t, run(t, pool, "shout", `{}`), `failed node root: the input has no "text"`)
	stop()
}
