package schema_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// C32: the prefix is the time whatever zone the session is in; that of the tests is Asia/Kathmandu.
func TestUUID7_VersionVariantAndTimeOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if zone := one[string](t, pool, "show timezone"); zone != "Asia/Kathmandu" {
		t.Fatalf("the session's zone is %s", zone)
	}
	const sql = `
		select count(*) filter (where substr(id::text, 15, 1) <> '7' or substr(id::text, 20, 1) not in ('8', '9', 'a', 'b')),
			count(*) filter (where substr(id::text, 1, 13) < substr(previous::text, 1, 13)),
			count(*) filter (where at not between early - interval '1 ms' and late),
			count(distinct id)
		from (
			select early, id, late, lag(id) over (order by n) as previous,
				timestamptz '1970-01-01 00:00:00Z' + ('x' || translate(substr(id::text, 1, 13), '-', ''))::bit(48)::bigint * interval '1 ms' as at
			from (select n, clock_timestamp() as early, pgexec.uuid7() as id, clock_timestamp() as late from generate_series(1, 5000) n offset 0) ids
		) x`
	var badBits, backwards, otherTime, distinct int
	if err := pool.QueryRow(t.Context(), sql).Scan(&badBits, &backwards, &otherTime, &distinct); err != nil {
		t.Fatal(err)
	}
	if badBits != 0 || backwards != 0 || otherTime != 0 || distinct != 5000 {
		t.Errorf("%d with wrong version or variant, %d out of order, %d with another time, %d distinct of 5000", badBits, backwards, otherTime, distinct)
	}
	if got := one[string](t, pool, "select pgexec.uuid7_floor('2026-01-01 05:45:00.001999+05:45')::text"); got != "019b76da-a801-0000-0000-000000000000" {
		t.Errorf("uuid7_floor gives %s", got)
	}
}

func TestRunsInsert_MakesOneWakeInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one[string](t, tx, "insert into pgexec.runs (kind) values ('x') returning run_id::text")
	if n := one[int](t, tx, "select count(*) from pgexec.river_job"); n != 1 {
		t.Errorf("%d jobs in the transaction", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, pool, "select count(*) from pgexec.river_job"); n != 0 {
		t.Errorf("%d jobs after the rollback", n)
	}
	const insert = `insert into pgexec.runs (kind, queue, priority) values ('x', 'slow', 4) returning run_id::text`
	id := one[string](t, pool, insert)
	got := one[string](t, pool, `
		select concat_ws(' ', j.kind, j.state, j.queue, j.priority, j.max_attempts, j.args)
		from pgexec.runs r join pgexec.river_job j on j.id = r.wake_job`)
	if want := `pgexec_wake available slow 4 25 {"run_id": "` + id + `"}`; got != want {
		t.Errorf("job is %s, want %s", got, want)
	}
}

// notifications runs f on a connection and returns what is notified on River's channel until then.
func notifications(t *testing.T, pool *pgxpool.Pool, f func(*pgx.Conn)) []string {
	t.Helper()
	listener, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.WithoutCancel(t.Context()))
	if _, err := listener.Exec(t.Context(), `listen "pgexec.river_insert"`); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	f(conn.Conn())
	// The server delivers in order of commits: what comes before this is all there was.
	exec(t, pool, `select pg_notify('pgexec.river_insert', 'end')`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for {
		n, err := listener.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "end" {
			slices.Sort(got)
			return got
		}
		got = append(got, n.Payload)
	}
}

func TestRunsInsert_NotifiesOncePerQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const insert = `insert into pgexec.runs (kind, queue) select 'x', (array['a', 'b'])[1 + n % 2] from generate_series(1, 10) n`
	got := notifications(t, pool, func(c *pgx.Conn) {
		if _, err := c.Exec(t.Context(), insert); err != nil {
			t.Error(err)
		}
	})
	if want := []string{`{"queue" : "a"}`, `{"queue" : "b"}`}; !slices.Equal(got, want) {
		t.Errorf("notified %q, want %q", got, want)
	}
}

func TestRunsInsert_NoNotificationWhenOffOrNotDue(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	got := notifications(t, pool, func(c *pgx.Conn) {
		for _, sql := range []string{
			`begin; set local pgexec.notify_on_insert = off; insert into pgexec.runs (kind) values ('x'); commit`,
			`insert into pgexec.runs (kind, run_at) values ('x', now() + interval '1 hour')`,
			`insert into pgexec.runs (kind) select 'x' where false`,
		} {
			if _, err := c.Exec(t.Context(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	if len(got) != 0 {
		t.Errorf("notified %q", got)
	}
	if n := one[int](t, pool, "select count(*) from pgexec.river_job"); n != 1 {
		t.Errorf("%d jobs, want that of the run that is due", n)
	}
}

func TestRunsInsert_FutureRunHasNoWake(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `insert into pgexec.runs (kind, run_at) values ('x', now() + interval '1 second'), ('y', now() - interval '1 hour')`)
	if got := one[string](t, pool, `select string_agg(kind || ' ' || (wake_job is null), ', ' order by kind) from pgexec.runs`); got != "x true, y false" {
		t.Errorf("runs without a wake: %s", got)
	}
	if n := one[int](t, pool, "select count(*) from pgexec.river_job"); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestRunsInsert_OverridesWhatACallerMayNotChoose(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `
		insert into pgexec.runs (kind, status, owner, epoch, inbox, wake_job, orphaned_by, waiting_kinds, result, result_seq, error, reason,
			created_by, created_at, started_at, finished_at, wanted, wanted_reason, depth, parent_node_id, input_tokens, output_tokens, cost_usd, nodes_done, unpriced, has_tasks, may_ask)
		values ('x', 'running', 7, 9, 3, -1, 8, '{y}', '1', 4, 'e', 'r', 'somebody', '2000-01-01', now(), now(), 'cancel', 'r', 5, 'n', 1, 2, 3, 4, 5, true, true)`)
	got := one[string](t, pool, `
		select concat_ws(' ', status, epoch, inbox, created_by = session_user, wake_job > 0, created_at > now() - interval '1 minute',
			num_nonnulls(owner, orphaned_by, waiting_kinds, result, result_seq, error, reason, started_at, finished_at, wanted, wanted_reason, parent_node_id),
			depth + input_tokens + output_tokens + cost_usd + nodes_done + unpriced + has_tasks::int + may_ask::int)
		from pgexec.runs`)
	if want := "queued 0 0 t t t 0 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What cannot be is refused in words that begin with the column, have the value, and say what is allowed.
func TestRunsInsert_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, c := range []struct{ columns, values, words string }{
		{"", "''", "kind is empty, must be the kind of the run's first node"},
		{"", "null", `null value in column "kind"`},
		{"", "repeat('é', 65)", "kind has 130 bytes, must have at most 128: \"éé"},
		{"", `e'a\nb'`, `kind is "a\nb", must have no # and no control characters`},
		{"", "'a#b'", `kind is "a#b", must have no #`},
		{", queue", "'x', ''", `queue is empty, must be a name, as "default"`},
		{", queue", "'x', 'Not A Queue'", `queue is "Not A Queue", must be lower-case letters and digits, in words joined by - or _`},
		{", queue", "'x', repeat('q', 128)", "queue has 128 characters, must have at most 127"},
		{", priority", "'x', 5", "priority is 5, must be 1 (most urgent) to 4"},
		{", max_tokens", "'x', 0", "max_tokens is 0, must be positive, or null for no limit"},
		{", max_cost_usd", "'x', 'NaN'", "max_cost_usd is NaN, must be positive"},
		{", max_cost_usd", "'x', -0.5", "max_cost_usd is -0.5, must be positive"},
		{", max_nodes", "'x', -1", "max_nodes is -1, must be positive"},
		{", max_wall_ms", "'x', -1", "max_wall_ms is -1, must be positive"},
		{", max_turns", "'x', 0", "max_turns is 0, must be positive"},
		{", max_tool_calls", "'x', 0", "max_tool_calls is 0, must be positive"},
		{", max_parallel", "'x', 0", "max_parallel is 0, must be positive"},
		{", deadline", "'x', 'infinity'", "deadline is infinity, must be a time, or null for none"},
		{", soft_limit", "'x', 1.5", "soft_limit is 1.5, must be above 0 and at most 1"},
		{", labels", "'x', '[]'", `labels is a list, must be an object, as {"team": "blue"}`},
		{", idempotency_key", "'x', repeat('k', 1025)", `idempotency_key has 1025 bytes, must have at most 1024: "kkk`},
		{", labels", "'x', jsonb_build_object('k', repeat('é', 8192))", "labels has 16393 bytes as text, must have at most 16384 (16 KiB): put what is long into input"},
		{", labels", "'x', '{\"k\": 1e100000}'", "labels has 100008 bytes as text, must have at most 16384"},
		{", traceparent", "'x', repeat('t', 513)", `traceparent has 513 bytes, must have at most 512: "ttt`},
	} {
		_, err := pool.Exec(t.Context(), "insert into pgexec.runs (kind"+c.columns+") values ("+c.values+")")
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Code, "23") || !strings.HasPrefix(refused.Message, c.words) {
			t.Errorf("%s: %v; want %s", c.values, err, c.words)
		}
	}
	// The longest of all, and of what does not compress.
	exec(t, pool, `insert into pgexec.runs (kind, queue, idempotency_key) select repeat('k', 128), repeat('q', 127), left(string_agg(md5(n::text), ''), 1024) from generate_series(1, 32) n`)
	exec(t, pool, `insert into pgexec.runs (kind, labels, traceparent) select 'x', jsonb_build_object('k', repeat('l', 16384 - 9)), repeat('t', 512)`)
}

// A run for a queue that no replica serves says so.
func TestRunOverview_QueueThatNobodyServes(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `insert into pgexec.replicas (replica_id, host, pid, version, kinds, queues, max_hot_runs, backend_pid, backend_start)
		values (7, 'h', 1, 'v', '{x}', '{default,fast}', 10, 1, now())`)
	exec(t, pool, `insert into pgexec.runs (kind, queue) values ('x', 'slow'), ('x', 'fast')`)
	same(t, strings.Join(column[string](t, pool, `select queue || ': ' || waits_for from pgexec.run_overview order by queue`), "\n"), `
		fast: queued for 00:00:00
		slow: no replica for queue slow
	`)
}

func TestRunsInsert_TenThousandAtOnce(t *testing.T) {
	t.Parallel()
	const jobs = `select count(*) from pgexec.runs r join pgexec.river_job j on j.id = r.wake_job and j.args ->> 'run_id' = r.run_id::text`
	t.Run("insert select", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		exec(t, pool, "insert into pgexec.runs (kind) select 'x' from generate_series(1, 10000)")
		if n := one[int](t, pool, jobs); n != 10000 {
			t.Errorf("%d runs have their job", n)
		}
	})
	t.Run("copy", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.DB(t)
		_, err := pool.CopyFrom(t.Context(), pgx.Identifier{"pgexec", "runs"}, []string{"kind", "input"},
			pgx.CopyFromSlice(10000, func(i int) ([]any, error) { return []any{"x", fmt.Sprintf(`{"n": %d}`, i)}, nil }))
		if err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, pool, jobs); n != 10000 {
			t.Errorf("%d runs have their job", n)
		}
	})
}

func TestRunsInsert_IdempotencyKeyMakesOneRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for range 2 {
		exec(t, pool, "insert into pgexec.runs (kind, idempotency_key) values ('x', 'k') on conflict (idempotency_key) where idempotency_key is not null do nothing")
	}
	if got := one[string](t, pool, "select concat_ws(' ', (select count(*) from pgexec.runs), (select count(*) from pgexec.river_job))"); got != "1 1" {
		t.Errorf("runs and jobs: %s", got)
	}
}

// An application needs INSERT on the tables it writes, and nothing else.
func TestInsert_NeedsNoOtherRight(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	role, as := newRole(t, pool)
	exec(t, pool, "grant usage on schema pgexec to "+role)
	exec(t, pool, "grant insert on pgexec.runs, pgexec.signals to "+role)
	exec(t, as, "insert into pgexec.runs (kind) select 'x' from generate_series(1, 3)")
	id := one[string](t, pool, "select run_id::text from pgexec.runs limit 1")
	exec(t, as, "insert into pgexec.signals (run_id, name, created_by, created_at) values ($1, 'go', 'somebody', '2000-01-01')", id)
	got := one[string](t, pool, `
		select concat_ws(' ', count(*) filter (where created_by = $1), count(wake_job), sum(inbox)) from pgexec.runs`, role)
	if got != "3 3 1" {
		t.Errorf("runs by the role, wakes, signals: %s, want 3 3 1", got)
	}
	if by := one[string](t, pool, "select created_by || (created_at > now() - interval '1 minute') from pgexec.signals"); by != role+"true" {
		t.Errorf("the signal is by %s", by)
	}
	for _, sql := range []string{
		"select * from pgexec.runs", "select * from pgexec.river_job", "update pgexec.runs set epoch = 5", "insert into pgexec.run_log values (pgexec.uuid7(), 1, '')",
		"select pgexec.wake_runs('{}')", "select pgexec.ensure_partitions()", "table pgexec.nodes", "table pgexec.run_overview",
	} {
		_, err := as.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v, want permission denied", sql, err)
		}
	}
}

// park makes a run that waits for a signal.
func park(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	id := one[string](t, pool, "insert into pgexec.runs (kind) values ('x') returning run_id::text")
	exec(t, pool, "delete from pgexec.river_job")
	exec(t, pool, "update pgexec.runs set status = 'parked', wake_job = null where run_id = $1", id)
	return id
}

func TestSignalsInsert_WakesAParkedRunOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id := park(t, pool)
	got := notifications(t, pool, func(c *pgx.Conn) {
		for _, sql := range []string{
			"insert into pgexec.signals (run_id, name) values ($1, 'a'), ($1, 'b')",
			"insert into pgexec.signals (run_id, name) values ($1, 'c')",
			// The same message again is no further one.
			"insert into pgexec.signals (run_id, name, dedupe_key) values ($1, 'd', 'k') on conflict do nothing",
			"insert into pgexec.signals (run_id, name, dedupe_key) values ($1, 'd', 'k') on conflict do nothing",
		} {
			if _, err := c.Exec(t.Context(), sql, id); err != nil {
				t.Error(err)
			}
		}
	})
	if want := []string{`{"queue" : "default"}`}; !slices.Equal(got, want) {
		t.Errorf("notified %q, want %q", got, want)
	}
	if got := one[string](t, pool, "select concat_ws(' ', inbox, wake_job = (select id from pgexec.river_job), (select count(*) from pgexec.river_job)) from pgexec.runs"); got != "4 t 1" {
		t.Errorf("inbox, wake, jobs: %s, want 4 t 1", got)
	}
}

func TestSignalsInsert_WakesOnlyRunsThatCanGoOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, tc := range []struct {
		change string
		woken  int
	}{
		{"status = 'parked', wake_job = null", 1},
		{"status = 'parked', wake_job = null, run_at = now() + interval '1 hour'", 1},
		{"status = 'queued', wake_job = null, run_at = now() + interval '1 hour'", 0},
		{"status = 'queued', wake_job = null", 1},
		{"status = 'running', owner = 1, wake_job = null", 0},
		{"status = 'paused', wake_job = null", 0},
		{"status = 'parked', wake_job = 1", 0},
	} {
		id := park(t, pool)
		exec(t, pool, "update pgexec.runs set "+tc.change+" where run_id = $1", id)
		exec(t, pool, "insert into pgexec.signals (run_id, name) values ($1, 'go')", id)
		if n := one[int](t, pool, "select count(*) from pgexec.river_job"); n != tc.woken {
			t.Errorf("a run with %s: %d wakes, want %d", tc.change, n, tc.woken)
		}
		if n := one[int](t, pool, "select inbox from pgexec.runs where run_id = $1", id); n != 1 {
			t.Errorf("a run with %s: inbox is %d", tc.change, n)
		}
	}
}

func TestSignalsInsert_UnknownRunIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const unknown = "0198a000-0000-7000-8000-000000000000"
	known := park(t, pool)
	_, err := pool.Exec(t.Context(), "insert into pgexec.signals (run_id, name) values ($1, 'go'), ($2, 'go')", known, unknown)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "23503" || refused.Message != "run "+unknown+" does not exist: a signal needs a run" {
		t.Errorf("error %v", err)
	}
	if n := one[int](t, pool, "select count(*) from pgexec.signals"); n != 0 {
		t.Errorf("%d signals are there", n)
	}
}
