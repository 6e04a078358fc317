package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// randomStorm says how many random programs run, and how many at once.
type randomStorm struct {
	seed        uint64
	first       int // number of the first program
	programs    int
	least       int // of them, however long they take
	atOnce      int
	limit       time.Duration // bounds the time to the start of more than the least
	settle      time.Duration // bounds the time from the last start on
	mostDetails int           // programs printed in full
}

// randomStormOf takes the seed from $PGEXEC_RANDOM_SEED, the number of programs from
// $PGEXEC_RANDOM_PROGRAMS and that of the first one from $PGEXEC_RANDOM_FIRST where they are set.
func randomStormOf(t *testing.T) randomStorm {
	s := randomStorm{seed: rand.Uint64(), programs: 2000, least: 300, atOnce: 150, limit: 45 * time.Second, settle: 3 * time.Minute, mostDetails: 3}
	if testing.Short() {
		s.programs = 200
	}
	var err error
	if text := os.Getenv("PGEXEC_RANDOM_SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for name, field := range map[string]*int{"PGEXEC_RANDOM_PROGRAMS": &s.programs, "PGEXEC_RANDOM_FIRST": &s.first} {
		if text := os.Getenv(name); text != "" {
			if *field, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("repeat with PGEXEC_RANDOM_SEED=%d", s.seed)
	return s
}

// Random programs: graphs that are found out step by step, with fan-outs, chains, joins of both sorts, failures that are
// handled, or not, or repaired and retried, attempts, sleeps, waits for signals with and without a timeout, child runs in
// child runs, cancels, pauses and limits of whole trees and of parts. Meanwhile the replicas' connections are cut, their
// sessions killed, replicas drained and replica processes killed, and runs are parked whenever they only wait. Then every run
// has ended (G4), its log is a clean prefix (G2) with each node once in each of its lives (G1), recorded by the owner of
// that time (G3) after its parents (G5), with the very output, attempts and usage that a model computes which executes nothing
// (C17, C39); what a node wrote in its record's transaction is there exactly once (G6); nothing was executed under a claim that found its record (G6); each signal ended one wait at most and each
// wait took one signal at most (C11, C13, C38); each run node has one child run; nothing is left owned, parked, paused or woken.
func TestRandomPrograms_EndAsTheModelSays(t *testing.T) {
	s := randomStormOf(t)
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.limit+2*s.settle)
	shop := workshop{dir: t.TempDir()}
	if _, err := pool.Exec(ctx, effects); err != nil {
		t.Fatal(err)
	}
	crowd := newCrowd(t, rand.New(rand.NewPCG(s.seed, 1<<32)), shop)
	d := newDriver(t, pool, shop, rand.New(rand.NewPCG(s.seed, 1<<33)))

	var running, tending sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait(); tending.Wait() })
	tendCtx, endTend := context.WithCancel(ctx)
	tending.Go(func() { d.tend(tendCtx) })
	chaosCtx, endChaos := context.WithCancel(ctx)
	started := time.Now()
	running.Go(func() {
		defer endChaos()
		s.runAll(ctx, d)
	})
	crowd.chaos(chaosCtx)
	running.Wait()
	calm := time.Now()
	stuck := waitForTrees(ctx, t, pool, s.settle)
	t.Logf("%d programs in %.1f s, all ended %.1f s later; %v; %d replicas started",
		len(d.all), calm.Sub(started).Seconds(), time.Since(calm).Seconds(), crowd.done, crowd.starts)
	endTend()
	tending.Wait()
	for _, id := range stuck[:min(len(stuck), s.mostDetails)] {
		d.report(ctx, s, id, []string{"it has not ended"})
	}
	if len(stuck) == 0 {
		checkQuiet(ctx, t, pool, len(crowd.local)+len(crowd.child))
	}
	crowd.drain()
	checkQuiet(ctx, t, pool, 0)
	if len(stuck) == 0 {
		d.checkAll(ctx, s)
	}
}

// runAll starts the programs, so many at once, and returns when each has ended or was given up. A busy machine
// gets no further than the least of them before the limit, and leaves it at that.
func (s randomStorm) runAll(ctx context.Context, d *driver) {
	end := time.Now().Add(s.limit)
	more := func(n int64) bool {
		return n < int64(s.programs) && (n < int64(s.least) || time.Now().Before(end)) && ctx.Err() == nil && !d.t.Failed()
	}
	var workers sync.WaitGroup
	var next atomic.Int64
	for range s.atOnce {
		workers.Go(func() {
			for n := next.Add(1) - 1; more(n); n = next.Add(1) - 1 {
				d.mind(ctx, newProgram(s.seed, s.first+int(n)))
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		d.t.Errorf("only %d programs were started: %v", len(d.all), err)
	}
}

// waitForTrees waits until all runs have ended and returns those that do not.
func waitForTrees(ctx context.Context, t *testing.T, pool *pgxpool.Pool, limit time.Duration) []pgexec.RunID {
	t.Helper()
	for deadline := time.Now().Add(limit); ; pause(ctx, t) {
		open, err := ids(pool.Query(ctx, `select run_id from pgexec.runs where status not in ('succeeded', 'failed', 'cancelled') order by run_id`))
		if err != nil {
			t.Fatal(err)
		}
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			t.Errorf("%d runs have not ended %v after the last was started", len(open), limit)
			return open
		}
	}
}

// report fails the test with all there is about the program of a run.
func (d *driver) report(ctx context.Context, s randomStorm, id pgexec.RunID, problems []string) {
	d.t.Helper()
	i := slices.IndexFunc(d.all, func(m *minded) bool { return m.root == d.roots[id] })
	if i < 0 {
		d.t.Errorf("run %s is of no program: %v", id, problems)
		return
	}
	m := d.all[i]
	d.t.Errorf("run %s: %v\nrepeat with PGEXEC_RANDOM_SEED=%d PGEXEC_RANDOM_FIRST=%d PGEXEC_RANDOM_PROGRAMS=1\nretries %d, repaired %v, cancelled %v\n%s",
		id, problems, s.seed, m.program.Number, m.retries, m.repairedAt, m.cancelled, describe(ctx, d.pool, m.root, m.program))
}

// checkAll compares all that has happened with the model.
func (d *driver) checkAll(ctx context.Context, s randomStorm) {
	d.t.Helper()
	e := collect(ctx, d.t, d.pool, d.shop)
	total := randomTally{statuses: make(map[string]int)}
	wrong := 0
	for _, m := range d.all {
		delete(e.unchecked, m.root)
		c := &treeCheck{evidence: e, minded: m}
		c.check()
		total.add(c.tally)
		if len(c.problems) == 0 {
			continue
		}
		if wrong++; wrong <= s.mostDetails {
			d.report(ctx, s, m.root, c.problems)
		} else {
			d.t.Errorf("program %d: %v", m.program.Number, c.problems)
		}
	}
	for id := range e.unchecked {
		d.t.Errorf("run %s is of no program: %+v", id, e.rows[id])
	}
	d.t.Logf("%+v, at most %d parked at once", total, d.mostParked)
	if s.programs >= 200 && (total.afterDeath == 0 || total.retried == 0 || total.paused == 0 || total.signals == 0 ||
		total.children == 0 || total.effects == 0 || total.statuses["cancelled"] == 0 || d.mostParked == 0) {
		d.t.Error("too little has happened: the test shows nothing")
	}
}
