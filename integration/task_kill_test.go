package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// relayProcess is a replica whose runs pass a baton: each lap is run by a program outside.
func relayProcess() {
	runReplica(func(*os.File) *pgexec.Config {
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, "relay", func(_ context.Context, n *pgexec.Node, left int) (int, error) {
			if left > 0 {
				lap := n.Spawn("lap", left, &pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprint("lap", left))})
				n.Spawn("relay", left-1, &pgexec.SpawnOpts{After: []pgexec.NodeRef{lap}})
			}
			return left, nil
		}, nil)
		return &pgexec.Config{
			Kinds: kinds, Host: os.Getenv(replicaHost), Grace: drainGrace, PoisonAfter: 1000, Linger: 50 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		}
	})
}

// workerProcess takes laps and runs them, until it is killed.
func workerProcess() {
	err := work(context.Background(), os.Getenv(replicaURL), os.Getenv(replicaHost))
	fmt.Fprintln(os.Stderr, "worker:", err)
	os.Exit(1)
}

func work(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	for {
		var id int64
		var key string
		err := conn.QueryRow(ctx, `select task_id, idempotency_key from pgexec.take('lap', $1, '500 ms')`, name).Scan(&id, &key)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			time.Sleep(rand.N(20 * time.Millisecond))
			continue
		case err != nil:
			return err
		}
		time.Sleep(rand.N(60 * time.Millisecond))
		if _, err := conn.Exec(ctx, `select pgexec.complete($1, $2, to_json($3::text))`, id, name, key); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err) // another worker took it
		}
	}
}

// G1, G4, G6, C17: workers and replicas are killed at random, also in the middle of a task and between its end and its
// record. Every task is recorded once, none is forgotten, and no death is a failed attempt.
func TestTasks_WorkersAndReplicasKilled(t *testing.T) {
	t.Parallel()
	const runs, laps = 40, 6
	chaos := 15 * time.Second
	if testing.Short() {
		chaos = 5 * time.Second
	}
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), chaos+4*patience)
	defer cancel()
	query[any](ctx, t, pool, `select pgexec.declare_kind('lap', max_attempts => 1, max_lost_leases => 1000)`)

	dir, starts := t.TempDir(), 0
	start := func(child string) *pgtest.Child {
		starts++
		return pgtest.StartChild(t, child, replicaURL+"="+pgtest.URL(t), replicaDir+"="+dir, replicaHost+"="+fmt.Sprint(child[:1], starts))
	}
	what := []string{"relay replica", "relay replica", "worker", "worker", "worker"}
	processes := make([]*pgtest.Child, len(what))
	for i := range what {
		processes[i] = start(what[i])
	}
	tick, over := time.NewTicker(200*time.Millisecond), time.After(chaos)
	defer tick.Stop()
	for inserted, going := 0, true; going && ctx.Err() == nil; {
		select {
		case <-tick.C:
			victim := rand.N(len(what))
			processes[victim].Kill()
			processes[victim] = start(what[victim])
			if inserted < runs {
				query[any](ctx, t, pool, `with r as (insert into pgexec.runs (kind, input) select 'relay', $1 from generate_series(1, 4)) select 1`, fmt.Sprint(laps))
				inserted += 4
			}
		case <-over:
			going = inserted < runs
			over = time.After(0)
		}
	}
	eventually(ctx, t, pool, `select not exists (select from pgexec.runs where status <> 'succeeded')`)
	// A task that a worker was just taking when its run ended is removed when a replica keeps house.
	processes[0].Kill()
	processes[0] = start(what[0])
	eventually(ctx, t, pool, `select not exists (select from pgexec.tasks)`)
	t.Logf("%d processes, %d of them replaced", starts, starts-len(what))
	recorded := query[string](ctx, t, pool, `select concat_ws(' ', count(*), count(distinct (run_id, node_id)),
			count(*) filter (where attempt = 1 and status = 'succeeded' and output #>> '{}' = run_id || '/' || node_id))
		from pgexec.nodes where kind = 'lap'`)
	if want := fmt.Sprint(runs*laps, runs*laps, runs*laps); recorded != want {
		t.Errorf("%s laps recorded, distinct, and as they should be; want %s", recorded, want)
	}
	if gaps := query[int](ctx, t, pool, `select count(*) from (select from pgexec.run_log group by run_id having count(*) <> max(seq)) g`); gaps > 0 {
		t.Errorf("%d logs have gaps", gaps)
	}
}
