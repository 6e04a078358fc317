package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// storm says how long and on how many runs the kill test works.
type storm struct {
	runs   int
	chaos  time.Duration
	settle time.Duration // bounds the time from the last kill to the end of the last run
	seed   uint64
}

// stormOf takes the seed from $PGEXEC_KILL_SEED and the duration from
// $PGEXEC_KILL_FOR where they are set.
func stormOf(t *testing.T) storm {
	s := storm{runs: 200, chaos: time.Minute, settle: 3 * time.Minute, seed: rand.Uint64()}
	if testing.Short() {
		s.runs, s.chaos = 40, 10*time.Second
	}
	var err error
	if text := os.Getenv("PGEXEC_KILL_SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("PGEXEC_KILL_FOR"); text != "" {
		if s.chaos, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("repeat with PGEXEC_KILL_SEED=%d", s.seed)
	return s
}

// The guarantees on real processes. Three replicas work on 200 runs of 30 nodes
// that come in by plain SQL while replicas are killed, drained, frozen and
// started again at random. Then every run has succeeded with the result that a
// pure model computes (G4); every log is a clean prefix 1…n (G2) with each
// node once (G1), recorded by the owner of that time (G3, C02, C07) after its
// parents (G5); no node was executed more often than once and once more for each
// death of its run's owner (G6); locks are O(replicas) all the time; nothing is left owned,
// listed or waiting, the jobs of replicas that died between fetch and claim
// included (C14).
func TestReplicas_KilledDrainedFrozenAtRandom(t *testing.T) {
	s := stormOf(t)
	rng := rand.New(rand.NewPCG(s.seed, 0))
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.chaos+2*s.settle)
	defer cancel()

	f := newFleet(t, rng, pgtest.URL(t))
	var background sync.WaitGroup
	inserted := make(chan []insertedRun, 1)
	background.Go(func() { inserted <- insertRuns(ctx, t, pool, s) })
	chaosCtx, endChaos := context.WithCancel(ctx)
	locks := 0
	background.Go(func() { locks = watchLocks(chaosCtx, t, pool) })
	f.chaos(s.chaos)
	endChaos()
	background.Wait()
	if t.Failed() {
		t.FailNow()
	}
	runs := <-inserted

	calm := time.Now()
	waitForAll(ctx, t, pool, s)
	t.Logf("%v; %d processes, %d runs; all done %.1f s after the last kill; at most %d locks at once",
		f.done, f.starts, len(runs), time.Since(calm).Seconds(), locks)
	checkQuiet(ctx, t, pool, len(f.seat))
	f.drain()
	checkQuiet(ctx, t, pool, 0)

	executions := readExecutions(t, f.dir)
	var total tally
	for _, run := range runs {
		total.add(checkRun(ctx, t, pool, run, executions[run.id]))
	}
	t.Logf("%d nodes in %d executions, %d of them once more for each death; %d claims, of them %d after a death",
		total.nodes, total.executions, total.tight, total.claims, total.afterDeath)
	if kills, drains, freezes := f.done["SIGKILL"], f.done["SIGTERM"], f.done["short SIGSTOP"]+f.done["long SIGSTOP"]; kills*drains*freezes == 0 && !testing.Short() {
		t.Errorf("%d kills, %d drains, %d freezes: the test shows less than it says", kills, drains, freezes)
	}
	if total.afterDeath == 0 || total.executions == total.nodes {
		t.Error("no run was cut off: the test shows nothing")
	}
}

type insertedRun struct {
	id    pgexec.RunID
	shape string
	seed  int64
}

// insertRuns inserts runs as an application does, with plain SQL, spread over nearly all of the chaos;
// every tenth is due a little later.
func insertRuns(ctx context.Context, t *testing.T, pool *pgxpool.Pool, s storm) []insertedRun {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	tick := time.NewTicker(s.chaos * 19 / 20 / time.Duration(s.runs))
	defer tick.Stop()
	var runs []insertedRun
	for len(runs) < s.runs {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Error("runs could not be inserted in time")
			return runs
		}
		run := insertedRun{shape: shapeNames[len(runs)%len(shapeNames)], seed: rng.Int64N(1 << 40)}
		wait := time.Duration(0)
		if len(runs)%10 == 9 {
			wait = draw(rng, 2*time.Second)
		}
		err := pool.QueryRow(ctx, `
			insert into pgexec.runs (kind, input, run_at)
			values ('step', jsonb_build_object('shape', $1::text, 'seed', $2::bigint, 'index', 0), now() + $3::interval)
			returning run_id`, run.shape, run.seed, wait).Scan(&run.id)
		if err != nil {
			t.Errorf("insert run: %v", err)
			return runs
		}
		runs = append(runs, run)
	}
	return runs
}

// watchLocks samples pgexec's advisory locks until ctx is done and returns the
// most there were at once. G8, C09: a lock for each replica that lives, and
// those that finders try for the length of a statement; never one for a run.
func watchLocks(ctx context.Context, t *testing.T, pool *pgxpool.Pool) (most int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
		var n, replicas int
		if err := pool.QueryRow(ctx, `select (`+countLocks+`), (select count(*) from pgexec.replicas)`).Scan(&n, &replicas); err != nil && ctx.Err() == nil {
			t.Errorf("count locks: %v", err)
			return most
		}
		// Three replicas, those that replace them, and those that take their time to leave.
		if bound := 4 + 4*replicas; n > bound {
			t.Errorf("%d advisory locks are held at once while %d replicas are listed", n, replicas)
			return n
		}
		most = max(most, n)
	}
}

const countLocks = `select count(*) from pg_locks
	where locktype = 'advisory' and classid = 1885824376 and granted
	and database = (select oid from pg_database where datname = current_database())`

// waitForAll waits until every run has ended.
func waitForAll(ctx context.Context, t *testing.T, pool *pgxpool.Pool, s storm) {
	t.Helper()
	deadline := time.Now().Add(s.settle)
	for {
		var open int
		var oldest string
		err := pool.QueryRow(ctx, `select count(*), coalesce(min(concat_ws(' ', run_id, status, owner, 'epoch', epoch, 'job', wake_job, reason)), '')
			from pgexec.runs where status not in ('succeeded', 'failed', 'cancelled')`).Scan(&open, &oldest)
		switch {
		case err != nil:
			t.Fatal(err)
		case open == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d runs have not ended %v after the last kill, for example %s", open, s.settle, oldest)
		}
		pause(ctx, t)
	}
}

// pause is the time between two looks of a poll.
func pause(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}
