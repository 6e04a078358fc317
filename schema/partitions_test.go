package schema_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// ensure calls ensure_partitions.
func ensure(t *testing.T, pool *pgxpool.Pool, weeks int) int {
	t.Helper()
	return one[int](t, pool, "select pgexec.ensure_partitions($1)", weeks)
}

// appendAt adds a record to the log of an id of a moment, and says in which partition it is.
func appendAt(t *testing.T, pool *pgxpool.Pool, moment string) string {
	t.Helper()
	return one[string](t, pool, "insert into pgexec.run_log values (pgexec.uuid7_floor("+moment+"), 1, 'x') returning tableoid::regclass::text")
}

func TestPartitions_AWeekOfIDsEach(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	name := func(weeks string) string {
		return one[string](t, pool, "select 'pgexec.run_log_' || to_char(date_trunc('week', now() at time zone 'UTC') + interval '"+weeks+"', 'YYYYMMDD')")
	}
	const monday = "date_trunc('week', now() at time zone 'UTC') at time zone 'UTC'"
	for _, tc := range []struct{ moment, want string }{
		{"now()", name("0 weeks")},
		{monday, name("0 weeks")},
		{monday + " + interval '7 days' - interval '1 ms'", name("0 weeks")},
		{monday + " + interval '7 days'", name("1 week")},
		{monday + " + interval '35 days' - interval '1 ms'", name("4 weeks")},
		{monday + " + interval '35 days'", "pgexec.run_log_default"},
		{monday + " - interval '1 ms'", "pgexec.run_log_default"},
	} {
		if got := appendAt(t, pool, tc.moment); got != tc.want {
			t.Errorf("an id of %s is in %s, want %s", tc.moment, got, tc.want)
		}
	}
	for _, id := range []string{"00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "ffffffff-ffff-ffff-ffff-ffffffffffff"} {
		if got := one[string](t, pool, "insert into pgexec.run_log values ($1, 1, 'x') returning tableoid::regclass::text", id); got != "pgexec.run_log_default" {
			t.Errorf("%s is in %s", id, got)
		}
	}
	if n := one[int](t, pool, "select count(*) from pg_attribute where attrelid::regclass::text like 'pgexec.run_log%' and attname = 'record' and attstorage <> 'e'"); n != 0 {
		t.Errorf("%d partitions may compress records", n)
	}
}

func TestEnsurePartitions_AgainAndAtOnceMakesEachOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if n := ensure(t, pool, 4); n != 0 {
		t.Errorf("%d made that were there", n)
	}
	var (
		mu    sync.Mutex
		total int
		wg    sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			var n int
			err := pool.QueryRow(t.Context(), "select pgexec.ensure_partitions(10)").Scan(&n)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	wg.Wait()
	if total != 6 || ensure(t, pool, 10) != 0 {
		t.Errorf("%d made, want 6", total)
	}
}

func TestEnsurePartitions_AWeekThatHasRowsStaysInTheDefault(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const moment = "now() + interval '6 weeks'"
	if got := appendAt(t, pool, moment); got != "pgexec.run_log_default" {
		t.Fatalf("the row is in %s", got)
	}
	if n := ensure(t, pool, 8); n != 3 {
		t.Errorf("%d made, want weeks 5, 7 and 8", n)
	}
	if n := one[int](t, pool, "select count(*) from pgexec.run_log where run_id = pgexec.uuid7_floor("+moment+") or seq = 1"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	exec(t, pool, "delete from pgexec.run_log")
	if n := ensure(t, pool, 8); n != 1 {
		t.Errorf("%d made after the row is gone, want 1", n)
	}
}

// While somebody reads the default partition for long, appends go on and the partitions are made later.
func TestEnsurePartitions_DoesNotWaitForAReader(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, hold := range []string{"lock table only pgexec.run_log_default in access share mode", "lock table pgexec.run_log_default in access exclusive mode"} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var n int
		if err := pool.QueryRow(ctx, "select pgexec.ensure_partitions(6)").Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d made, %v", hold, n, err)
		}
		if _, err := pool.Exec(ctx, "insert into pgexec.run_log values (pgexec.uuid7(), 1, 'x')"); err != nil {
			t.Errorf("%s: append: %v", hold, err)
		}
		cancel()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := ensure(t, pool, 6); n != 2 {
		t.Errorf("%d made after the reader, want 2", n)
	}
}

// Attaching looks through the default partition under a lock that stops appends, so a large one is left alone.
func TestEnsurePartitions_LeavesALargeDefaultAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	// Pages that are almost empty make it large with little data.
	exec(t, pool, "alter table pgexec.run_log_default set (fillfactor = 10)")
	exec(t, pool, "insert into pgexec.run_log select gen_random_uuid(), 1, convert_to(repeat('x', 850), 'UTF8') from generate_series(1, 33000)")
	if n := ensure(t, pool, 6); n != 0 {
		t.Errorf("%d made", n)
	}
	exec(t, pool, "truncate pgexec.run_log_default")
	if n := ensure(t, pool, 6); n != 2 {
		t.Errorf("%d made beside an empty default, want 2", n)
	}
}
