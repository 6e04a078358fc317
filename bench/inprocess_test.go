package bench

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// serve runs a replica in this process until the benchmark ends and returns when it claims.
func serve(b *testing.B, pool *pgxpool.Pool, kinds *pgexec.Kinds) {
	b.Helper()
	rt, err := pgexec.New(pool, &pgexec.Config{
		Kinds:  kinds,
		Grace:  time.Second,
		Logger: slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rt.Run(ctx); err != nil {
			b.Errorf("replica: %v", err)
		}
	}()
	b.Cleanup(func() {
		stop()
		<-done
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for rt.State() != pgexec.StateReady {
		select {
		case <-tick.C:
		case <-time.After(patience):
			b.Fatal("the replica is not ready in time")
		}
	}
}

// poolLike opens another pool on the same database.
func poolLike(b *testing.B, pool *pgxpool.Pool, change func(*pgxpool.Config)) *pgxpool.Pool {
	b.Helper()
	cfg := pool.Config()
	change(cfg)
	other, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(other.Close)
	return other
}
