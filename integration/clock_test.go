package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// shiftedClock puts functions of a shifted clock in the place of the database's
// own ones, before anything is migrated: to every statement of pgexec and of
// River the server's clock is off from this machine's. It is the way round that
// needs no trick with this process's clock, which Go reads without libc.
func shiftedClock(ctx context.Context, t *testing.T, pool *pgxpool.Pool, offset time.Duration) {
	t.Helper()
	for name, volatility := range map[string]string{
		"now": "stable", "transaction_timestamp": "stable", "statement_timestamp": "stable", "clock_timestamp": "volatile",
	} {
		statements := fmt.Sprintf(`
			alter function pg_catalog.%[1]s() rename to unshifted_%[1]s;
			create function pg_catalog.%[1]s() returns timestamptz language sql %[2]s parallel safe
				as $$ select pg_catalog.unshifted_%[1]s() + interval '%[3]d seconds' $$`,
			name, volatility, int(offset.Seconds()))
		if _, err := pool.Exec(ctx, statements); err != nil {
			t.Fatal(err)
		}
	}
	pool.Reset() // what connections have prepared is of the old functions
}

// C32: a client whose clock is 10 minutes behind or ahead of the database's, in a session zone that is
// neither UTC nor the machine's. Times that runs and nodes wait for, by the
// database's clock, take as long as they should; records carry its time; no
// replica takes another for late; a dead one is found at once.
func TestReplicas_ClientClockIsOff(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]time.Duration{"behind": 10 * time.Minute, "ahead": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
			defer cancel()
			pool := pgtest.EmptyDB(t)
			shiftedClock(ctx, t, pool, offset)
			if err := pgexec.Migrate(ctx, pool); err != nil {
				t.Fatal(err)
			}
			checkShift(ctx, t, pool, offset)
			gate := make(chan struct{})
			kinds := timedKinds(gate)
			for i := range 2 {
				serve(t, pool, pgexec.Config{Kinds: kinds, Host: fmt.Sprintf("r%d", i), MaxHotRuns: 1})
			}
			client := newClient(t, pool)
			eventually(ctx, t, pool, `select count(*) = 2 from pgexec.replicas`)
			replicas := query[[]int32](ctx, t, pool, listReplicas)

			checkRunAt(ctx, t, pool, client)
			checkBackoff(ctx, t, pool, client)
			checkSnooze(ctx, t, pool, client, gate)
			if now := query[[]int32](ctx, t, pool, listReplicas); fmt.Sprint(now) != fmt.Sprint(replicas) {
				t.Errorf("replicas were %v and are %v: a live one was taken for late", replicas, now)
			}
			checkTakeover(ctx, t, pool, client)
		})
	}
}

const (
	listReplicas = `select array_agg(replica_id order by replica_id) from pgexec.replicas`
	// tolerance is for a machine that is busy; a clock that counts in the wrong place is off by minutes.
	tolerance = time.Minute
)

// checkShift makes sure that the test tests something.
func checkShift(ctx context.Context, t *testing.T, pool *pgxpool.Pool, offset time.Duration) {
	t.Helper()
	at := query[time.Time](ctx, t, pool, `select clock_timestamp()`)
	if off := time.Until(at) - offset; off.Abs() > tolerance {
		t.Fatalf("the database's clock shows %v here, want an offset of %v", at, offset)
	}
	if zone := query[string](ctx, t, pool, `show timezone`); zone != "Asia/Kathmandu" {
		t.Errorf("the session's zone is %s", zone)
	}
}

// timedKinds: "gated" waits for the gate, "flaky" fails once and waits a second, "hold" waits for its
// context's end the first time, wherever that is.
func timedKinds(gate chan struct{}) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "quick", func(context.Context, *pgexec.Node, struct{}) (bool, error) { return true, nil }, nil)
	pgexec.AddKind(kinds, "flaky", func(_ context.Context, n *pgexec.Node, _ struct{}) (bool, error) {
		if n.Attempt() == 1 {
			return false, pgexec.RetryAfter(errors.New("not yet"), time.Second)
		}
		return true, nil
	}, nil)
	pgexec.AddKind(kinds, "gated", func(ctx context.Context, _ *pgexec.Node, _ struct{}) (bool, error) {
		select {
		case <-gate:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}, nil)
	var held atomic.Bool
	pgexec.AddKind(kinds, "hold", func(ctx context.Context, _ *pgexec.Node, _ struct{}) (bool, error) {
		if held.CompareAndSwap(false, true) {
			<-ctx.Done()
			return false, context.Cause(ctx)
		}
		return true, nil
	}, nil)
	return kinds
}

// checkRunAt: a run that is due in a second, by the database's clock, starts then.
func checkRunAt(ctx context.Context, t *testing.T, pool *pgxpool.Pool, client *pgexec.Client) {
	t.Helper()
	began := time.Now()
	id := query[pgexec.RunID](ctx, t, pool, `insert into pgexec.runs (kind, run_at) values ('quick', now() + interval '1 second') returning run_id`)
	run := succeed(ctx, t, client, id)
	if took := time.Since(began); took < time.Second || took > time.Second+tolerance {
		t.Errorf("a run that is due in a second ended after %v", took)
	}
	if late := run.StartedAt.Sub(run.RunAt); late < 0 || late > tolerance {
		t.Errorf("a run due at %v started at %v", run.RunAt, run.StartedAt)
	}
	checkTimes(ctx, t, pool, id)
}

// checkBackoff: a node that is to be tried again after a second is.
func checkBackoff(ctx context.Context, t *testing.T, pool *pgxpool.Pool, client *pgexec.Client) {
	t.Helper()
	began := time.Now()
	id := start(ctx, t, client, "flaky", struct{}{})
	succeed(ctx, t, client, id)
	if took := time.Since(began); took < time.Second || took > time.Second+tolerance {
		t.Errorf("a node that waits a second for its second attempt ended after %v", took)
	}
	checkTimes(ctx, t, pool, id)
}

// checkSnooze: a wake that finds every replica full rests for a moment, not for the difference of the clocks.
func checkSnooze(ctx context.Context, t *testing.T, pool *pgxpool.Pool, client *pgexec.Client, gate chan struct{}) {
	t.Helper()
	ids := []pgexec.RunID{start(ctx, t, client, "gated", struct{}{}), start(ctx, t, client, "gated", struct{}{})}
	eventually(ctx, t, pool, `select count(*) = 2 from pgexec.runs where status = 'running'`)
	ids = append(ids, start(ctx, t, client, "quick", struct{}{}))
	const rested = `select coalesce((metadata->>'snoozes')::int, 0) > 0 from pgexec.river_job
		where id = (select wake_job from pgexec.runs where run_id = $1)`
	eventually(ctx, t, pool, rested, ids[2])
	began := time.Now()
	close(gate)
	for _, id := range ids {
		succeed(ctx, t, client, id)
	}
	if took := time.Since(began); took > tolerance {
		t.Errorf("a wake that rested took %v", took)
	}
}

// checkTakeover: the run of a replica whose session ended starts again within seconds.
func checkTakeover(ctx context.Context, t *testing.T, pool *pgxpool.Pool, client *pgexec.Client) {
	t.Helper()
	id := start(ctx, t, client, "hold", struct{}{})
	eventually(ctx, t, pool, `select owner is not null from pgexec.runs where run_id = $1`, id)
	began := time.Now()
	query[bool](ctx, t, pool, `select pg_terminate_backend(backend_pid) from pgexec.replicas
		where replica_id = (select owner from pgexec.runs where run_id = $1)`, id)
	succeed(ctx, t, client, id)
	if took := time.Since(began); took > tolerance {
		t.Errorf("takeover took %v", took)
	}
	checkTimes(ctx, t, pool, id)
}

// checkTimes: what a run's records say of time is the database's, between the run's creation and now.
func checkTimes(ctx context.Context, t *testing.T, pool *pgxpool.Pool, id pgexec.RunID) {
	t.Helper()
	const outside = `
		select count(*) from pgexec.nodes n join pgexec.runs r using (run_id)
		where r.run_id = $1 and not (n.started_at between r.created_at - interval '1 minute' and clock_timestamp() + interval '1 minute'
			and n.finished_at between n.started_at and clock_timestamp() + interval '1 minute')`
	if n := query[int](ctx, t, pool, outside, id); n != 0 {
		t.Errorf("run %s: the times of %d nodes are not the database's", id, n)
	}
}
