package schema_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// writeLog makes a run with these records.
func writeLog(t testing.TB, pool *pgxpool.Pool, records ...[]byte) (id string) {
	t.Helper()
	id = one[string](t, pool, "insert into pgexec.runs (kind) values ('x') returning run_id::text")
	exec(t, pool, "insert into pgexec.run_log select $1, n, r from unnest($2::bytea[]) with ordinality x (r, n)", id, records)
	return id
}

func TestNodes_OneLineForEachNodeThatIsDone(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	failed := &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "bad", Kind: "tool", Status: pb.NodeStatus_NODE_STATUS_FAILED, Error: &pb.Error{Message: "no"}}}}
	id := writeLog(t, pool,
		encode(t, &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 7, Epoch: 1}}}),
		encode(t, node600(1)), encode(t, failed), []byte("\x0a\x05"), []byte{},
		encode(t, &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: pb.RunStatus_RUN_STATUS_SUCCEEDED}}}))
	writeLog(t, pool, encode(t, node600(9)))
	const sql = `
		select concat_ws(' | ', seq, node_id, kind, parents, status, output ->> 'role', error, attempt, tokens, cost_usd::float8,
			started_at = timestamptz '2026-03-14 15:09:26.535897Z', finished_at - started_at = duration, duration, replica_id)
		from pgexec.nodes where run_id = $1 order by seq`
	got := column[string](t, pool, sql, id)
	want := []string{
		"2 | turn-1 | turn | {tool-1} | succeeded | assistant | 1 | 1200 | 0.0015 | t | t | 00:00:01.5 | 12345678",
		"3 | bad | tool | {} | failed | no | 0 | 0",
		"4 | {} | damaged record: a field is longer than its message | 0 | 0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("nodes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// explain is the plan of a statement.
func explain(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) string {
	t.Helper()
	return strings.Join(column[string](t, pool, "explain (costs off) "+sql, args...), "\n")
}

// A run's nodes are found through the primary key in the run's own partition, the others are not looked at.
func TestNodes_AFilterByRunReachesThePrimaryKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `
		insert into pgexec.run_log
		select id, seq, '\x0a00' from (select pgexec.uuid7() as id from generate_series(1, 500) offset 0) ids, generate_series(1, 20) seq`)
	exec(t, pool, "analyze pgexec.run_log")
	id := one[string](t, pool, "select min(run_id::text) from pgexec.run_log")
	for _, where := range []string{"run_id = $1", "run_id = $1 and seq > 10", "run_id = $1 and status = 'failed'"} {
		plan := explain(t, pool, "select * from pgexec.nodes where "+where, id)
		// (An index may also be read through a bitmap.)
		if !regexp.MustCompile(`run_log_\d+_pkey[^>]*\n\s+Index Cond: \(?\(run_id = `).MatchString(plan) || strings.Count(plan, "_pkey") != 1 || strings.Contains(plan, "Seq Scan") {
			t.Errorf("where %s:\n%s", where, plan)
		}
	}
}

func TestNodes_FiveThousandRecords(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	var records [][]byte
	for i := range 5000 {
		records = append(records, encode(t, node600(i)))
	}
	id := writeLog(t, pool, records...)
	start := time.Now()
	got := one[string](t, pool, "select concat_ws(' ', count(*), count(distinct node_id), sum(tokens), sum(length(output::text)) > 5000 * 400) from pgexec.nodes where run_id = $1", id)
	if want := "5000 5000 6000000 t"; got != want {
		t.Errorf("nodes sum up to %s, want %s", got, want)
	}
	t.Logf("5,000 records of %d bytes in %s", len(records[0]), time.Since(start))
}

func TestRunOverview_SaysWhereARunIsAndWhyItWaits(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	insertReplica(t, pool, 7, 0)
	for _, tc := range []struct{ change, want string }{
		{"run_at = '2100-01-01 00:00Z'", "queued | scheduled at 2100-01-01T00:00:00Z | 0"},
		{"epoch = 2, run_at = '2100-01-01 00:00Z', reason = 'tried again: no end'", "queued | scheduled at 2100-01-01T00:00:00Z: tried again: no end | 2"},
		{"run_at = now() - interval '61 seconds', created_at = now() - interval '1 hour'", "queued | queued for 00:01:01 | 0"},
		{"waiting_kinds = '{gpu,tpu}'", "queued | no replica for kind gpu, tpu | 0"},
		{"epoch = 1, orphaned_by = 6", "queued | replica 6 died | 1"},
		{"epoch = 3, status = 'running', owner = 7", "running | 7 | host-7 | 3"},
		{"epoch = 1, status = 'running', owner = 8", "running | 8 | 1"},
		{"epoch = 1, status = 'parked', reason = 'signal approval'", "parked | signal approval | 1"},
		{"epoch = 1, status = 'paused', reason = 'max_nodes reached'", "paused | max_nodes reached | 1"},
		{"epoch = 1, status = 'paused'", "paused | paused | 1"},
		{"epoch = 1, status = 'failed', error = 'boom', finished_at = created_at + interval '3 seconds'", "failed | 1 | boom"},
	} {
		id := writeLog(t, pool, []byte("a"), []byte("b"))
		exec(t, pool, "update pgexec.runs set "+tc.change+" where run_id = $1", id)
		got := one[string](t, pool, "select concat_ws(' | ', status, owner, host, waits_for, claims, error) from pgexec.run_overview where run_id = $1", id)
		if got != tc.want {
			t.Errorf("a run with %s: %s, want %s", tc.change, got, tc.want)
		}
		if head := one[int](t, pool, "select head from pgexec.run_overview where run_id = $1", id); head != 2 {
			t.Errorf("head is %d, want 2", head)
		}
	}
	if age := one[string](t, pool, "select age::text from pgexec.run_overview where status = 'failed'"); age != "00:00:03" {
		t.Errorf("the age of a finished run is %s", age)
	}
	exec(t, pool, "insert into pgexec.runs (kind) values ('new')")
	if !one[bool](t, pool, "select head is null from pgexec.run_overview where kind = 'new'") {
		t.Error("a run that nobody has claimed has a head")
	}
}

// A page of the listing costs what the page costs, however many runs there are.
func TestRunOverview_APageOfManyRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, "begin; set local pgexec.notify_on_insert = off; insert into pgexec.runs (kind) select 'x' from generate_series(1, 20000); commit")
	exec(t, pool, "insert into pgexec.run_log select run_id, 1, 'x' from pgexec.runs")
	exec(t, pool, "analyze pgexec.runs, pgexec.run_log, pgexec.replicas")
	looks := regexp.MustCompile(`run_log\S* .*loops=(\d+)`)
	for _, order := range []string{"", "order by run_id desc", "order by created_at desc"} {
		page := "select count(head) from (select * from pgexec.run_overview " + order + " limit 50) page"
		if n := one[int](t, pool, page); n != 50 {
			t.Errorf("%q: %d lines have a head", order, n)
		}
		plan := strings.Join(column[string](t, pool, "explain (analyze, costs off, timing off) "+page), "\n")
		found := looks.FindAllStringSubmatch(plan, -1)
		for _, look := range found {
			if n, err := strconv.Atoi(look[1]); err != nil || n > 50 {
				t.Errorf("%q: %s looks at the log for 50 lines:\n%s", order, look[1], plan)
			}
		}
		if len(found) == 0 {
			t.Errorf("%q: the plan says nothing of the log:\n%s", order, plan)
		}
	}
	plan := explain(t, pool, "select * from pgexec.run_overview order by run_id desc limit 50")
	if !strings.Contains(plan, "Index Scan Backward using runs_pkey") || !regexp.MustCompile(`Index Only Scan Backward using run_log_\d+_pkey`).MatchString(plan) {
		t.Errorf("reads whole tables:\n%s", plan)
	}
}

func insertReplica(t *testing.T, pool *pgxpool.Pool, id, backendPID int) {
	t.Helper()
	exec(t, pool, `
		insert into pgexec.replicas (replica_id, host, pid, version, kinds, queues, max_hot_runs, hot_runs, backend_pid, backend_start)
		values ($1, 'host-' || $1::integer, 42, 'v1', '{agent,http}', '{default}', 100, 3, $2, now())`, id, backendPID)
}

func TestReplicaOverview_AliveWhileItsLockIsHeld(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	session, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(t.Context()))
	const high = 2147483647
	var pid int
	if err := session.QueryRow(t.Context(), "select pg_backend_pid() from pg_advisory_lock(1885824376, $1)", high).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	insertReplica(t, pool, high, pid)
	insertReplica(t, pool, 5, pid)
	exec(t, pool, "update pgexec.replicas set heartbeat_at = clock_timestamp() - interval '1 hour', draining = true where replica_id = 5")
	const sql = `
		select string_agg(concat_ws(' ', replica_id, host, pid, version, alive, draining, hot_runs, max_hot_runs, heartbeat_age > interval '1 hour', kinds, queues), ', ' order by replica_id)
		from pgexec.replica_overview`
	if got, want := one[string](t, pool, sql), "5 host-5 42 v1 f t 3 100 t {agent,http} {default}, 2147483647 host-2147483647 42 v1 t f 3 100 f {agent,http} {default}"; got != want {
		t.Errorf("replicas are\n%s\nwant\n%s", got, want)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "the replica is shown as dead", func() bool {
		return one[bool](t, pool, "select not alive from pgexec.replica_overview where replica_id = $1", high)
	})
}
