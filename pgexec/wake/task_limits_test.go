package wake

import (
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
