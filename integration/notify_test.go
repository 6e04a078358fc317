package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// noNotifications puts in the place of pg_notify a function that fails as it does while the server's queue is full.
func noNotifications(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, `
		alter function pg_catalog.pg_notify(text, text) rename to real_notify;
		create function pg_catalog.pg_notify(text, text) returns void language plpgsql as $$ begin
			raise exception 'too many notifications in the NOTIFY queue' using errcode = 'program_limit_exceeded';
		end $$`)
	if err != nil {
		t.Fatal(err)
	}
	pool.Reset()
}

// quiet is a pool of an application that has its sessions notify nobody.
func quiet(ctx context.Context, t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["pgexec.notify_on_insert"] = "off"
	own, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	return own
}

// C23, C28, G4: while every notification fails, nothing of what is done fails with it, since no transaction that
// matters notifies: appends, takeovers, drains, releases, timers, signals, child runs, their ends and cancels, limits and
// tasks of programs outside all come by polling.
func TestReplicas_EveryNotificationFails_C23_C28_G4(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	pool := pgtest.DB(t)
	noNotifications(ctx, t, pool)
	app := quiet(ctx, t, pool)
	client := newClient(t, app)
	if _, err := pool.Exec(ctx, `select pg_notify('pgexec_log', '')`); err == nil {
		t.Fatal("a notification came through")
	}
	var fails atomic.Bool
	fails.Store(true)
	stops := make(map[string]func())
	kinds := silentKinds(pool, &fails)
	for i := range 2 {
		host := fmt.Sprintf("r%d", i)
		stops[host] = serve(t, pool, pgexec.Config{Kinds: kinds, Host: host, Grace: time.Millisecond, Linger: time.Millisecond})
	}
	eventually(ctx, t, pool, `select count(*) = 2 from pgexec.replicas`)

	t.Run("appends", func(t *testing.T) {
		const runs, nodes = 20, 100
		var ids []pgexec.RunID
		for range runs {
			ids = append(ids, start(ctx, t, client, "link", nodes))
		}
		for _, id := range ids {
			succeed(ctx, t, client, id)
		}
		if n := query[int](ctx, t, pool, `select count(*) from pgexec.nodes`); n != runs*nodes {
			t.Errorf("%d nodes are recorded, want %d", n, runs*nodes)
		}
	})
	t.Run("timers and signals", func(t *testing.T) {
		id := start(ctx, t, client, "waits", nil)
		eventually(ctx, t, pool, `select status = 'parked' and run_at = 'infinity' from pgexec.runs where run_id = $1`, id)
		if err := client.Signal(ctx, id, "go", nil, nil); err != nil {
			t.Fatal(err)
		}
		succeed(ctx, t, client, id)
		late := query[pgexec.RunID](ctx, t, app, `insert into pgexec.runs (kind, input, run_at) values ('link', '1', now() + interval '1 second') returning run_id`)
		succeed(ctx, t, client, late)
	})
	t.Run("child runs", func(t *testing.T) {
		id := start(ctx, t, client, "parent", nil)
		if run, err := client.Wait(ctx, id); err != nil || run.Status != pgexec.RunFailed {
			t.Fatalf("run %+v, error %v", run, err)
		}
		eventually(ctx, t, pool, `select bool_and(status = 'cancelled') from pgexec.runs where parent_run_id = $1`, id)
		fails.Store(false)
		if answer, err := client.Retry(ctx, id); err != nil || answer != "retrying" {
			t.Fatalf("retry: %q, %v", answer, err)
		}
		child := query[pgexec.RunID](ctx, t, pool, `select run_id from pgexec.runs where parent_run_id = $1`, id)
		if err := client.Signal(ctx, child, "go", nil, nil); err != nil {
			t.Fatal(err)
		}
		succeed(ctx, t, client, id)
	})
	t.Run("limits of the fleet", func(t *testing.T) {
		if _, err := app.Exec(ctx, `insert into pgexec.kind_limits (kind, max_in_flight) values ('limited', 1)`); err != nil {
			t.Fatal(err)
		}
		var ids []pgexec.RunID
		for range 6 {
			ids = append(ids, start(ctx, t, client, "limited", nil))
		}
		for _, id := range ids {
			succeed(ctx, t, client, id)
		}
	})
	t.Run("tasks", func(t *testing.T) { silentTask(ctx, t, app, client) })
	t.Run("kinds that come later", func(t *testing.T) {
		id := start(ctx, t, client, "later", nil)
		eventually(ctx, t, pool, `select waiting_kinds is not null from pgexec.runs where run_id = $1`, id)
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, "later", func(context.Context, *pgexec.Node, struct{}) (int, error) { return 1, nil }, nil)
		serve(t, pool, pgexec.Config{Kinds: kinds, Host: "later"})
		succeed(ctx, t, client, id)
	})
	for _, way := range []string{"drain", "takeover"} {
		t.Run(way, func(t *testing.T) {
			id := start(ctx, t, client, "twice", nil)
			const owner = `select host from pgexec.replicas where replica_id = (select owner from pgexec.runs where run_id = $1)`
			eventually(ctx, t, pool, `select exists (`+owner+`)`, id)
			if host := query[string](ctx, t, pool, owner, id); way == "drain" {
				stops[host]()
			} else {
				query[bool](ctx, t, pool, `select pg_terminate_backend(backend_pid) from pgexec.replicas where host = $1`, host)
			}
			succeed(ctx, t, client, id)
			if epoch := query[int](ctx, t, pool, `select epoch from pgexec.runs where run_id = $1`, id); epoch < 2 {
				t.Errorf("the run was claimed %d times", epoch)
			}
		})
	}
}

// silentTask does what a worker does with a task: gives it back, takes it again and completes it.
func silentTask(ctx context.Context, t *testing.T, app *pgxpool.Pool, client *pgexec.Client) {
	query[any](ctx, t, app, `select pgexec.declare_kind('outside')::text`)
	id := start(ctx, t, client, "outside", nil)
	eventually(ctx, t, app, `select exists (select from pgexec.take('outside', 'w'))`)
	const task = `(select task_id from pgexec.tasks where run_id = $1)`
	query[any](ctx, t, app, `select pgexec.extend(`+task+`, 'w', '0')::text`, id)
	eventually(ctx, t, app, `select exists (select from pgexec.take('outside', 'w'))`)
	if !query[bool](ctx, t, app, `select pgexec.complete(`+task+`, 'w', '7')`, id) {
		t.Error("the task was not completed")
	}
	if run := succeed(ctx, t, client, id); string(run.Result) != "7" {
		t.Errorf("result %s", run.Result)
	}
}

// silentKinds are those of the test. "link" is a chain; "waits" ends with a signal, after a moment; "parent" fails, while
// it is to, beside a child run that waits; "limited" takes a moment; "twice" is cut off once.
func silentKinds(pool *pgxpool.Pool, fails *atomic.Bool) *pgexec.Kinds {
	kinds := links()
	pgexec.AddKind(kinds, "waits", func(_ context.Context, n *pgexec.Node, _ struct{}) (int, error) {
		slept := n.Spawn(pgexec.KindSleep, pgexec.SleepInput{For: "1500ms"}, nil)
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{slept}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "parent", func(_ context.Context, n *pgexec.Node, _ struct{}) (int, error) {
		n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "waits"}, nil)
		n.Spawn("fragile", nil, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "fragile", func(ctx context.Context, n *pgexec.Node, _ struct{}) (int, error) {
		if fails.Load() {
			return 0, childParked(ctx, pool, n.RunID())
		}
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "limited", func(ctx context.Context, _ *pgexec.Node, _ struct{}) (int, error) { return 0, moment(ctx) }, nil)
	var cut sync.Map
	pgexec.AddKind(kinds, "twice", func(ctx context.Context, n *pgexec.Node, _ struct{}) (int, error) {
		if _, again := cut.LoadOrStore(n.RunID(), true); !again {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		return 0, nil
	}, nil)
	return kinds
}

// childParked is how a node fails whose sibling is a child run, once that waits.
func childParked(ctx context.Context, pool *pgxpool.Pool, id pgexec.RunID) error {
	for parked := false; !parked; {
		const statement = `select exists (select from pgexec.runs where parent_run_id = $1 and status = 'parked')`
		if err := errors.Join(moment(ctx), pool.QueryRow(ctx, statement, id).Scan(&parked)); err != nil {
			return err
		}
	}
	return pgexec.Permanent(errors.New("broken"))
}

// moment is the time that a node takes.
func moment(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// holdNotifyLock has a commit that notifies wait for a standby that does not exist: until the end of the test it holds the lock of
// the whole server that every commit which notifies takes.
func holdNotifyLock(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`create table theirs (n integer)`, `set synchronous_commit = on`} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	held := make(chan struct{})
	go func() {
		defer close(held)
		_, _ = conn.Exec(ctx, `with written as (insert into theirs values (1) returning n) select pg_notify('theirs', n::text) from written`)
	}()
	pid := int32(conn.PgConn().PID())
	t.Cleanup(func() {
		if _, err := pool.Exec(context.WithoutCancel(ctx), `select pg_terminate_backend($1)`, pid); err != nil {
			t.Error(err)
		}
		<-held
		_ = conn.Close(context.WithoutCancel(ctx))
	})
	eventually(ctx, t, pool, `select coalesce((select wait_event = 'SyncRep' from pg_stat_activity where pid = $1), false)`, pid)
}

// C23, C28, G8: while another application's commit holds the lock under which notifying commits queue up, runs are claimed,
// recorded, parked, woken and ended, with the smallest pool.
func TestReplicas_NotifyLockIsHeld_C23_C28_G8(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	server := pgtest.Server(t, pgserver.Config{Settings: map[string]string{"synchronous_commit": "local", "synchronous_standby_names": "nobody"}})
	pool := pgtest.DBOn(t, server)
	small := pool.Config()
	small.MaxConns = pgexec.MinPoolConns
	replicas, err := pgxpool.NewWithConfig(ctx, small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replicas.Close)
	var none atomic.Bool
	serve(t, replicas, pgexec.Config{Kinds: silentKinds(pool, &none), Linger: time.Millisecond})
	eventually(ctx, t, pool, `select count(*) = 1 from pgexec.replicas`)
	holdNotifyLock(ctx, t, pool)

	client := newClient(t, quiet(ctx, t, pool))
	const runs, nodes = 20, 100
	var ids []pgexec.RunID
	for range runs {
		ids = append(ids, start(ctx, t, client, "link", nodes))
	}
	waits := start(ctx, t, client, "waits", nil)
	for _, id := range ids {
		succeed(ctx, t, client, id)
	}
	eventually(ctx, t, pool, `select status = 'parked' and run_at = 'infinity' from pgexec.runs where run_id = $1`, waits)
	if err := client.Signal(ctx, waits, "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	succeed(ctx, t, client, waits)
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.nodes`); n != runs*nodes+3 {
		t.Errorf("%d nodes are recorded, want %d", n, runs*nodes+3)
	}
	if !query[bool](ctx, t, pool, `select exists (select from pg_stat_activity where wait_event = 'SyncRep')`) {
		t.Error("the lock was not held to the end")
	}
}
