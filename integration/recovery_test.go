package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// C10: Postgres restarts, without an orderly end, while runs of a replica that was killed are being recovered: the first
// time just after it was taken off the list, then at random moments. All runs end as the model of their plans says, and no
// process that was not killed has ended.
func TestReplicas_PostgresRestartsDuringRecovery(t *testing.T) {
	t.Parallel()
	const rounds, runsEach = 5, 4
	server := pgtest.Server(t, pgserver.Config{})
	pool := pgtest.DBOn(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	dir := t.TempDir()
	children, starts := make(map[string]*pgtest.Child), 0
	replica := func() {
		starts++
		host := fmt.Sprintf("replica-%d", starts)
		children[host] = startReplica(t, pool.Config().ConnString(), dir, host)
	}
	for range 3 {
		replica()
	}
	// A process that never had a session ends if it gets none.
	const listed = `select count(distinct host) = 3 from pgexec.replicas where host = any($1::text[])`
	eventually(ctx, t, pool, listed, slices.Collect(maps.Keys(children)))
	var runs []insertedRun
	for round := range rounds {
		for range runsEach {
			run := insertedRun{shape: shapeNames[len(runs)%len(shapeNames)], seed: rand.Int64N(1 << 40)}
			run.id = query[pgexec.RunID](ctx, t, pool, `
				insert into pgexec.runs (kind, input) values ('step', jsonb_build_object('shape', $1::text, 'seed', $2::bigint, 'index', 0))
				returning run_id`, run.shape, run.seed)
			runs = append(runs, run)
		}
		alive := slices.Sorted(maps.Keys(children))
		const owners = `from pgexec.runs r join pgexec.replicas p on p.replica_id = r.owner where p.host = any($1::text[])`
		eventually(ctx, t, pool, `select exists (select `+owners+`)`, alive)
		host := query[string](ctx, t, pool, `select coalesce(min(p.host), ($1::text[])[1]) `+owners, alive)
		children[host].Kill()
		delete(children, host)
		if round == 0 {
			eventually(ctx, t, pool, `select not exists (select from pgexec.replicas where host = $1)`, host)
		} else {
			rest(ctx, t, rand.N(1500*time.Millisecond))
		}
		if err := server.Restart(ctx, pgserver.Immediate); err != nil {
			t.Fatal(err)
		}
		awaitServer(ctx, t, pool)
		replica()
		eventually(ctx, t, pool, listed, slices.Collect(maps.Keys(children)))
	}
	waitForAll(ctx, t, pool, storm{settle: 2 * patience})
	for host, child := range children {
		signalTerm(child)
		if code := child.Wait(patience); code != 0 {
			t.Errorf("%s left with code %d after SIGTERM", host, code)
		}
	}
	executions := readExecutions(t, dir)
	var total tally
	for _, run := range runs {
		total.add(checkRun(ctx, t, pool, run, executions[run.id]))
	}
	t.Logf("%d nodes in %d executions; %d claims, of them %d after a death", total.nodes, total.executions, total.claims, total.afterDeath)
}

// rest lets time pass.
func rest(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// awaitServer waits until a pool's connections lead to the server again.
func awaitServer(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	pool.Reset()
	for deadline := time.Now().Add(patience); pool.Ping(ctx) != nil; pause(ctx, t) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not answer")
		}
	}
}
