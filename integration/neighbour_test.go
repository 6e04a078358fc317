package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// C34, G8: nothing waits in SQL for a lock that somebody else keeps, and no
// transaction stays open, so that CREATE INDEX CONCURRENTLY, which waits for
// every older transaction, ends while replicas claim, run, find the dead and
// migrations are asked for.
func TestReplicas_IndexIsBuiltConcurrently(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	for range 3 {
		serve(t, pool, pgexec.Config{Kinds: links()})
	}
	client := newClient(t, pool)
	busyCtx, idle := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer idle()
	for range 4 {
		busy.Go(func() {
			for busyCtx.Err() == nil {
				id, err := client.Start(ctx, "link", 20, nil)
				if err == nil {
					_, err = client.Wait(ctx, id)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	busy.Go(func() {
		for busyCtx.Err() == nil {
			if err := pgexec.Migrate(ctx, pool); err != nil {
				t.Errorf("migrate: %v", err)
				return
			}
		}
	})
	eventually(ctx, t, pool, `select count(*) = 3 from pgexec.replicas`)
	eventually(ctx, t, pool, `select exists (select from pgexec.run_log)`)
	partition := query[string](ctx, t, pool, `select tableoid::regclass::text from pgexec.run_log limit 1`)
	busy.Go(func() { endSessions(busyCtx, t, pool) })
	const takeovers = `select count(*) from pgexec.run_log where pgexec.decode(record) #> '{claim,dead_replica_id}' is not null`
	eventually(ctx, t, pool, `select (`+takeovers+`) > 0`)
	before := query[int](ctx, t, pool, takeovers)
	after := before
	for round := 0; round == 0 || round < 20 && after == before; round++ {
		buildIndexes(ctx, t, pool, partition)
		after = query[int](ctx, t, pool, takeovers)
	}
	t.Logf("%d runs were taken over meanwhile", after-before)
	if after == before {
		t.Error("no run was taken over while indexes were built: the test shows nothing")
	}
}

// buildIndexes builds indexes of the busy tables.
func buildIndexes(ctx context.Context, t *testing.T, pool *pgxpool.Pool, partition string) {
	t.Helper()
	for _, statement := range []string{
		`create index concurrently on pgexec.runs (created_by)`,
		`create index concurrently on pgexec.river_job (attempt)`,
		`create index concurrently on ` + partition + ` (length(record))`,
		`create index concurrently on pgexec.replicas (host)`,
		`reindex table concurrently pgexec.runs`,
	} {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, patience)
		if _, err := pool.Exec(limited, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		cancel()
		t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), statement)
	}
}

// endSessions ends the session of a replica from time to time, until ctx is done.
func endSessions(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	for tick := time.NewTicker(300 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		_, err := pool.Exec(ctx, `select pg_terminate_backend(backend_pid) from pgexec.replicas order by random() limit 1`)
		if err != nil && ctx.Err() == nil {
			t.Errorf("end a session: %v", err)
			return
		}
	}
}

// C28: a listener that sits in an open transaction keeps the server from
// clearing its notification queue. Appends go on, since none of them notifies.
func TestReplicas_ListenerStuckInATransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{`listen pgexec_log`, `begin`, `select 1`} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, pool, pgexec.Config{Kinds: links()})
	client := newClient(t, pool)
	const runs, nodes = 20, 100
	var ids []pgexec.RunID
	for range runs {
		ids = append(ids, start(ctx, t, client, "link", nodes))
	}
	// What a busy system would have queued meanwhile.
	if _, err := pool.Exec(ctx, `select pg_notify('pgexec_log', n || $1) from generate_series(1, 50) n`, strings.Repeat("x", 7000)); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		succeed(ctx, t, client, id)
	}
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.nodes`); n != runs*nodes {
		t.Errorf("%d nodes are recorded, want %d", n, runs*nodes)
	}
	if usage := query[float64](ctx, t, pool, `select pg_notification_queue_usage()`); usage == 0 {
		t.Error("the notification queue is empty: the listener did not hold it")
	}
}
