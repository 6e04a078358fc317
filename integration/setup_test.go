package integration

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// patience bounds every wait for something that has to happen.
const patience = time.Minute

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// serve runs a replica in this process until the test ends, or stop is called, which drains it.
func serve(t *testing.T, pool *pgxpool.Pool, cfg pgexec.Config) (stop func()) {
	t.Helper()
	cfg.Logger = testLogger(t)
	rt, err := pgexec.New(pool, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rt.Run(ctx); err != nil {
			t.Errorf("replica: %v", err)
		}
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the replica does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

func newClient(t *testing.T, pool *pgxpool.Pool) *pgexec.Client {
	t.Helper()
	client := pgexec.NewClient(pool, &pgexec.ClientConfig{Logger: testLogger(t)})
	t.Cleanup(client.Close)
	return client
}

func start(ctx context.Context, t *testing.T, client *pgexec.Client, kind string, input any) pgexec.RunID {
	t.Helper()
	id, err := client.Start(ctx, kind, input, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// succeed waits for a run's end, which has to be a success.
func succeed(ctx context.Context, t *testing.T, client *pgexec.Client, id pgexec.RunID) *pgexec.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	run, err := client.Wait(ctx, id)
	if err == nil {
		err = run.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// query reads one value.
func query[T any](ctx context.Context, t *testing.T, pool *pgxpool.Pool, statement string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(ctx, statement, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// eventually waits until a statement that returns a boolean says true.
func eventually(ctx context.Context, t *testing.T, pool *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !query[bool](ctx, t, pool, statement, args...); pause(ctx, t) {
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s %v", statement, args)
		}
	}
}

// links is a kind of run whose input is the number of nodes in its chain.
func links() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "link", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
		if left > 1 {
			n.Spawn("link", left-1, nil)
		}
		return left, nil
	}, nil)
	return kinds
}
