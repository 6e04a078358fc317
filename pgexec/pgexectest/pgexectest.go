package pgexectest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

const (
	// patience bounds how long [Run] waits for a run.
	patience = time.Minute
	// pausedLook is how often it looks whether the run is paused, which nothing announces.
	pausedLook = 200 * time.Millisecond
)

// DB returns a pool on a migrated database that is the test's own. All calls of
// one test get the same; subtests have their own. It is dropped when the test
// has passed; after a failure it stays and its address is logged.
//
// The server is the one that $PGEXEC_TEST_DATABASE_URL names, by a role that may
// create databases; else a private one from the server programs installed here,
// which ends a minute after the last test that uses it. With neither the test is
// skipped, and fails if CI=true. Sessions have the time zone Asia/Kathmandu, so
// that no mistake in a zone goes unseen.
func DB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pgtest.DB(t)
}

// Serve starts a replica in this process, which is drained when the test ends,
// and returns a client. Its log goes to the test's.
func Serve(t testing.TB, pool *pgxpool.Pool, kinds *pgexec.Kinds) *pgexec.Client {
	t.Helper()
	client, stop := serve(t, pool, kinds)
	t.Cleanup(stop)
	return client
}

// serve starts a replica; stop drains it.
func serve(t testing.TB, pool *pgxpool.Pool, kinds *pgexec.Kinds) (client *pgexec.Client, stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	rt, err := pgexec.New(pool, &pgexec.Config{Kinds: kinds, Version: "test", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	client = pgexec.NewClient(pool, &pgexec.ClientConfig{Logger: log})
	return client, func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("replica: %v", err)
		}
	}
}

// Result is a run that has ended or is paused, and its nodes.
type Result struct {
	*pgexec.Run
	// Nodes are those that are done, in the order of the run's log.
	Nodes []Node
}

// Node is a node that is done.
type Node struct {
	ID      pgexec.NodeID
	Kind    string
	Parents []pgexec.NodeID
	// Status is "succeeded", "failed", "outcome_unknown" or "cancelled".
	Status string
	// Output as jsonb shows it; null if the node failed.
	Output json.RawMessage
	Error  string
	// Attempt counts the attempts made, the last one included.
	Attempt int
	Tokens  int64
	// CostUSD is nil where the cost, or a part of it, is not known.
	CostUSD *float64
}

// Run starts a replica in this process and a run of that kind on it, waits until
// the run has ended or is paused, whatever its status then, and stops the
// replica. A run that does neither within a minute fails the test; a test that
// has to do something meanwhile, send a signal for one, uses [Serve].
func Run(t testing.TB, pool *pgxpool.Pool, kinds *pgexec.Kinds, kind string, input any) *Result {
	t.Helper()
	client, stop := serve(t, pool, kinds)
	defer stop()
	id, err := client.Start(t.Context(), kind, input, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Result{Run: wait(t, client, id), Nodes: Nodes(t, pool, id)}
}

// wait returns the run when it has ended or is paused.
func wait(t testing.TB, client *pgexec.Client, id pgexec.RunID) *pgexec.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		look, cancel := context.WithTimeout(ctx, pausedLook)
		run, err := client.Wait(look, id)
		cancel()
		if err == nil {
			return run
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if run, err = client.Get(ctx, id); err != nil {
			t.Fatal(err)
		}
		if run.Status == pgexec.RunPaused {
			return run
		}
	}
}

// Nodes returns the run's nodes that are done, in the order of its log.
func Nodes(t testing.TB, pool *pgxpool.Pool, id pgexec.RunID) []Node {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql.PgexectestNodes, id)
	if err != nil {
		t.Fatalf("read nodes: %v", err)
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Node])
	if err != nil {
		t.Fatalf("read nodes: %v", err)
	}
	return nodes
}
