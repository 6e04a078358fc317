package wake

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// However many workers take tasks of a kind with a limit, no more than that are under a lease at any instant, and
// all are done in the end.
func TestTake_KeepsToMaxInFlight(t *testing.T) {
	b := setup(t)
	const tasks, workers, limit = 200, 6, 3
	withTasks(b, tasks)
	b.exec(`insert into pgexec.kind_limits (kind, max_in_flight) values ('t', $1)`, limit)
	var done atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			name := fmt.Sprint("w", w)
			for t.Context().Err() == nil && done.Load() < tasks {
				taken, err := b.take(t.Context(), name, time.Hour, 2)
				if err != nil {
					t.Error(err)
					return
				}
				for _, id := range taken {
					b.exec(`select pgexec.complete($1, $2)`, id, name)
				}
				done.Add(int64(len(taken)))
			}
		})
	}
	wg.Wait()
	most := get[int](b, `select coalesce(max(n), 0) from (
		select (select count(*) from pgexec.tasks o where o.taken_at <= t.taken_at and o.ended_at > t.taken_at) as n from pgexec.tasks t) c`)
	t.Logf("at most %d were under a lease at once", most)
	if most > limit || done.Load() != tasks {
		t.Errorf("%d tasks were under a lease at once, %d of %d are done", most, done.Load(), tasks)
	}
}

// Each key has the limit for itself, a lease that has expired does not count, and 0 stops the kind.
func TestTake_LimitsOfKeysAndLeases(t *testing.T) {
	b := setup(t)
	withTasks(b, 20)
	b.exec(`update pgexec.tasks set limit_key = case when task_id <= 15 then 'big' else 'small' end`)
	b.exec(`insert into pgexec.kind_limits (kind, max_in_flight, key_pointer) values ('t', 2, '/tenant')`)
	take := func(want string) {
		t.Helper()
		got := get[string](b, `with took as materialized (select task_id from pgexec.take('t', 'w', '1 hour', 10))
			select coalesce(string_agg(limit_key, ' ' order by limit_key), '') from took join pgexec.tasks using (task_id)`)
		if got != want {
			t.Errorf("took %q, want %q", got, want)
		}
	}
	take("big big small small")
	take("")
	if got := get[string](b, `select string_agg(key || ' ' || in_flight, ', ' order by key) from pgexec.limit_overview`); got != "big 2, small 2" {
		t.Errorf("in flight are %s", got)
	}
	b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second' where task_id = (select min(task_id) from pgexec.tasks where state = 'taken')`)
	take("big")
	b.exec(`select pgexec.complete(task_id, 'w') from pgexec.tasks where state = 'taken' and limit_key = 'small'`)
	take("small small")
	b.exec(`update pgexec.kind_limits set max_in_flight = 0`)
	b.exec(`select pgexec.complete(task_id, 'w') from pgexec.tasks where state = 'taken'`)
	take("")
	b.exec(`update pgexec.kind_limits set max_in_flight = null, rate = 3, per = '1 hour', burst = 3, key_pointer = null`)
	b.exec(`update pgexec.tasks set limit_key = ''`)
	take("  ")
	take("")
}

// A lease that expired while others took all that the limit allows cannot be renewed; with room it can, and what the worker
// says in the end counts as long as nobody took the task.
func TestExtend_KeepsToMaxInFlight(t *testing.T) {
	b := setup(t)
	withTasks(b, 3)
	b.exec(`insert into pgexec.kind_limits (kind, max_in_flight) values ('t', 1)`)
	lapse := func() int64 {
		t.Helper()
		taken, err := b.take(t.Context(), "late", time.Hour, 1)
		if err != nil || len(taken) != 1 {
			t.Fatal(taken, err)
		}
		b.exec(`update pgexec.tasks set lease_until = clock_timestamp() + interval '1 hour', created_at = clock_timestamp() where task_id <> $1`, taken[0])
		b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second' where task_id = $1`, taken[0])
		b.exec(`update pgexec.tasks set lease_until = null where state = 'waiting'`)
		return taken[0]
	}
	extend := `select pgexec.extend($1, 'late', '1 hour') is not null`
	id := lapse()
	if !get[bool](b, extend, id) {
		t.Error("there is room, and the lease is not renewed")
	}
	b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second' where task_id = $1`, id)
	b.exec(`update pgexec.tasks set created_at = clock_timestamp() - interval '1 hour' where task_id <> $1`, id)
	if taken, err := b.take(t.Context(), "other", time.Hour, 3); err != nil || len(taken) != 1 || taken[0] == id {
		t.Fatal(taken, err)
	}
	if get[bool](b, extend, id) {
		t.Error("two tasks are in flight, the limit is 1")
	}
	if !get[bool](b, `select pgexec.complete($1, 'late')`, id) {
		t.Error("a late completion does not count")
	}
}

// Tasks of keys that have reached their limit are passed over without being read, however many wait.
func TestTake_FullKeysAreNoLoad(t *testing.T) {
	b := setup(t)
	withTasks(b, 1)
	b.exec(`insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once, limit_key)
		select run_id, 'n' || n, 't', 1, '1', 2, false, case when n > 50000 then 'small ' || n % 300 else 'big' end
		from pgexec.runs, generate_series(1, 50600) n`)
	b.exec(`insert into pgexec.kind_limits (kind, max_in_flight, key_pointer) values ('t', 2, '/tenant')`)
	if n := get[int](b, `select count(*) from pgexec.take('t', 'w', '1 hour', 500)`); n != 500 {
		t.Errorf("took %d tasks at once", n)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	if err := tx.QueryRow(t.Context(), `select count(*) from pgexec.take('t', 'w', '1 hour', 10)`).Scan(&n); err != nil || n != 10 {
		t.Fatal(n, err)
	}
	var scans, read int64
	if err := tx.QueryRow(t.Context(), `select pg_stat_get_xact_numscans('pgexec.tasks'::regclass),
		(select sum(pg_stat_get_xact_tuples_returned(indexrelid)) from pg_index where indrelid = 'pgexec.tasks'::regclass)`).Scan(&scans, &read); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries of indexes were read", read)
	if scans > 0 || read > 20_000 {
		t.Errorf("%d scans of the table, %d entries of indexes read", scans, read)
	}
}
