package schema_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// runIn makes a run without a wake and gives its row the change.
func runIn(t testing.TB, pool *pgxpool.Pool, change string) string {
	t.Helper()
	id := one[string](t, pool, "insert into pgexec.runs (kind, run_at) values ('x', now() + interval '1 hour') returning run_id::text")
	exec(t, pool, "update pgexec.runs set "+change+" where run_id = $1", id)
	return id
}

// childIn makes a child run without a wake and gives its row the change.
func childIn(t testing.TB, pool *pgxpool.Pool, parent, node, change string) string {
	t.Helper()
	id := one[string](t, pool, `insert into pgexec.runs (kind, parent_run_id, parent_node_id, run_at)
		values ('c', $1, $2, now() + interval '1 hour') returning run_id::text`, parent, node)
	exec(t, pool, "update pgexec.runs set "+change+" where run_id = $1", id)
	return id
}

// state is a run in a line.
func state(t testing.TB, pool *pgxpool.Pool, id string) string {
	t.Helper()
	return one[string](t, pool, `select concat_ws(' ', status, case when wanted is not null then 'wanted ' || wanted end, 'inbox', inbox,
		case when exists (select from pgexec.river_job j where j.id = r.wake_job) then 'woken' end) from pgexec.runs r where run_id = $1`, id)
}

// C15: each request is answered for each state of the run, and does what it says.
func TestControl_AnswersInEveryState_C15(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const (
		queued    = "status = 'queued'"
		running   = "status = 'running', owner = 1"
		parked    = "status = 'parked', run_at = 'infinity'"
		paused    = "status = 'paused', reason = 'limit max_tokens reached'"
		orphaned  = "status = 'queued', orphaned_by = 7, run_at = now()"
		kindless  = "status = 'queued', waiting_kinds = '{y}'"
		pausing   = "status = 'running', owner = 1, wanted = 'pause'"
		cancelled = "status = 'running', owner = 1, wanted = 'cancel'"
		failed    = "status = 'failed', finished_at = now(), error = 'e'"
		succeeded = "status = 'succeeded', finished_at = now(), result = '1', result_seq = 3"
	)
	for _, tc := range []struct{ call, change, answer, after string }{
		{"cancel($1)", queued, "cancelling", "queued wanted cancel inbox 1 woken"},
		{"cancel($1)", running, "cancelling", "running wanted cancel inbox 1"},
		{"cancel($1)", parked, "cancelling", "queued wanted cancel inbox 1 woken"},
		{"cancel($1)", paused, "cancelling", "queued wanted cancel inbox 1 woken"},
		{"cancel($1)", orphaned, "cancelling", "queued wanted cancel inbox 1 woken"},
		{"cancel($1)", kindless, "cancelling", "queued wanted cancel inbox 1 woken"},
		{"cancel($1)", pausing, "cancelling", "running wanted cancel inbox 1"},
		{"cancel($1)", failed, "already failed", "failed inbox 0"},
		{"cancel($1)", succeeded, "already succeeded", "succeeded inbox 0"},
		{"cancel($1)", "status = 'cancelled'", "already cancelled", "cancelled inbox 0"},
		{"pause($1)", queued, "paused", "paused inbox 1"},
		{"pause($1)", running, "pausing", "running wanted pause inbox 1"},
		{"pause($1)", parked, "paused", "paused inbox 1"},
		{"pause($1)", paused, "already paused", "paused inbox 0"},
		{"pause($1)", orphaned, "paused", "paused inbox 1"},
		{"pause($1)", cancelled, "cancelling", "running wanted cancel inbox 0"},
		{"pause($1)", succeeded, "already succeeded", "succeeded inbox 0"},
		{"resume($1)", queued, "already queued", "queued inbox 0"},
		{"resume($1)", running, "already running", "running inbox 0"},
		{"resume($1)", parked, "already parked", "parked inbox 0"},
		{"resume($1)", paused, "resumed", "queued inbox 1 woken"},
		{"resume($1)", pausing, "resumed", "running inbox 1"},
		{"resume($1)", cancelled, "cancelling", "running wanted cancel inbox 0"},
		{"resume($1)", failed, "already failed", "failed inbox 0"},
		{"resume($1, add_tokens => 5)", running + ", max_tokens = 1", "limits raised", "running inbox 1"},
		{"resume($1, add_tokens => 5)", parked + ", max_tokens = 1", "limits raised", "parked inbox 1"},
		{"resume($1, add_tokens => 5)", running, "already running", "running inbox 0"},
		{"resume($1, add_tokens => 0)", running + ", max_tokens = 1", "already running", "running inbox 0"},
		{"retry($1)", failed, "retrying", "queued inbox 1 woken"},
		{"retry($1)", running, "is running: nothing to retry", "running inbox 0"},
		{"retry($1)", succeeded, "is succeeded: nothing to retry", "succeeded inbox 0"},
	} {
		id := runIn(t, pool, tc.change)
		if got := one[string](t, pool, "select pgexec."+tc.call, id); got != tc.answer {
			t.Errorf("%s with %s answers %q, want %q", tc.call, tc.change, got, tc.answer)
		}
		if got := state(t, pool, id); got != tc.after {
			t.Errorf("%s with %s: run is %q, want %q", tc.call, tc.change, got, tc.after)
		}
	}
	if n := one[int](t, pool, `select count(*) from pgexec.runs where status = 'queued' and wake_job is not null
		and (run_at > now() or num_nonnulls(waiting_kinds, finished_at, error, result, result_seq) > 0)`); n > 0 {
		t.Errorf("%d runs have a wake and could not go on", n)
	}
}

func TestControl_Reasons(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id := runIn(t, pool, "status = 'parked'")
	const shown = `select waits_for from pgexec.run_overview where run_id = $1`
	exec(t, pool, "select pgexec.pause($1, 'lunch')", id)
	if got := one[string](t, pool, shown, id); got != "paused: lunch" {
		t.Errorf("waits for %q", got)
	}
	exec(t, pool, "select pgexec.resume($1)", id)
	exec(t, pool, "update pgexec.runs set status = 'running', owner = 1, wake_job = null where run_id = $1", id)
	exec(t, pool, "select pgexec.pause($1)", id)
	if got := one[string](t, pool, shown, id); got != "being paused" {
		t.Errorf("waits for %q", got)
	}
	// Whoever asked first is named.
	exec(t, pool, "select pgexec.cancel($1, 'too dear')", id)
	exec(t, pool, "select pgexec.cancel($1, 'too late')", id)
	if got := one[string](t, pool, shown, id); got != "being cancelled: too dear" {
		t.Errorf("waits for %q", got)
	}
}

func wantRefusal(t *testing.T, err error, code, message string) {
	t.Helper()
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code || !strings.Contains(refused.Message, message) {
		t.Errorf("error %v, want %s with %q", err, code, message)
	}
}

func TestControl_Refusals(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const unknown = "0198a000-0000-7000-8000-000000000000"
	for _, call := range []string{"cancel($1)", "pause($1)", "resume($1)", "retry($1)", "signal($1, 'go')", "fork($1)"} {
		_, err := pool.Exec(t.Context(), "select pgexec."+call, unknown)
		wantRefusal(t, err, "23503", "run "+unknown+" does not exist")
	}
	for status, message := range map[string]string{"succeeded": "succeeded", "failed": "failed", "cancelled": "been cancelled"} {
		id := runIn(t, pool, "status = '"+status+"'")
		for _, statement := range []string{"select pgexec.signal($1, 'go')", "insert into pgexec.signals (run_id, name) values ($1, 'go')"} {
			_, err := pool.Exec(t.Context(), statement, id)
			wantRefusal(t, err, "55000", "run "+id+" has already "+message+": a signal can reach it no more")
		}
	}
	id := runIn(t, pool, "max_tokens = 9223372036854775807")
	_, err := pool.Exec(t.Context(), "select pgexec.resume($1, add_nodes => -1)", id)
	wantRefusal(t, err, "22023", "raised, not lowered")
	_, err = pool.Exec(t.Context(), "select pgexec.resume($1, add_tokens => 1)", id)
	wantRefusal(t, err, "22003", "out of range")
	_, err = pool.Exec(t.Context(), "select pgexec.signal($1, '')", id)
	wantRefusal(t, err, "23514", "signals_name_check")
	// A snapshot that is older than a child would miss it.
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "select pgexec.cancel($1)", id)
			return err
		})
		wantRefusal(t, err, "0A000", "read committed")
	}
}

// With the same key, a signal is sent once, by however many at once; the first one's id comes back, also when the run has ended.
func TestSignal_DedupeKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	id, other := runIn(t, pool, "status = 'parked'"), runIn(t, pool, "status = 'parked'")
	var wg sync.WaitGroup
	ids := make([]int64, 16)
	for i := range ids {
		wg.Go(func() {
			const send = "select pgexec.signal($1, 'go', to_jsonb($2::integer), dedupe_key => 'k')"
			if err := pool.QueryRow(t.Context(), send, id, i).Scan(&ids[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("ids %v", ids)
	}
	if got := one[int64](t, pool, "select pgexec.signal($1, 'go', dedupe_key => 'k')", other); got == ids[0] {
		t.Error("another run's signal is taken for it")
	}
	exec(t, pool, "select pgexec.signal($1, 'go'), pgexec.signal($1, 'go')", id)
	if got := one[string](t, pool, "select concat_ws(' ', inbox, (select count(*) from pgexec.signals s where s.run_id = r.run_id)) from pgexec.runs r where run_id = $1", id); got != "3 3" {
		t.Errorf("inbox and signals: %s, want 3 3", got)
	}
	exec(t, pool, "update pgexec.runs set status = 'succeeded' where run_id = $1", id)
	if got := one[int64](t, pool, "select pgexec.signal($1, 'go', dedupe_key => 'k')", id); got != ids[0] {
		t.Errorf("id %d, want %d", got, ids[0])
	}
}

// An application needs the use of the schema and nothing else to call the functions, and gains nothing by it.
func TestControl_NeedsOnlyUsageOfTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	role, as := newRole(t, pool)
	exec(t, pool, "grant usage on schema pgexec to "+role)
	id := runIn(t, pool, "status = 'parked'")
	exec(t, as, "select pgexec.signal($1, 'go', '1', 'node', 'key'), pgexec.pause($1, 'r'), pgexec.resume($1), pgexec.cancel($1, 'r')", id)
	exec(t, pool, "update pgexec.runs set status = 'failed', wanted = null, wake_job = null where run_id = $1", id)
	exec(t, as, "select pgexec.retry($1)", id)
	if by := one[string](t, pool, "select created_by from pgexec.signals"); by != role {
		t.Errorf("the signal is by %s", by)
	}
	for _, call := range []string{
		"tell_owners('{}')", "lock_named_run(null)", "lock_level('{}')", "handled_failures('{}')", "wake_runs('{}')",
	} {
		_, err := as.Exec(t.Context(), "select pgexec."+call)
		wantRefusal(t, err, "42501", "permission denied")
	}
	exec(t, pool, "grant insert on pgexec.runs to "+role)
	_, err := as.Exec(t.Context(), "insert into pgexec.runs (kind, parent_run_id, parent_node_id) values ('x', $1, 'n')", id)
	wantRefusal(t, err, "42501", "set by the runtime")
	_, err = pool.Exec(t.Context(), "insert into pgexec.runs (kind, parent_run_id) values ('x', pgexec.uuid7())")
	wantRefusal(t, err, "23503", "does not exist")
	// Not by way of a session that may do more, either.
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role "+role); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "insert into pgexec.runs (kind, parent_run_id) values ('x', $1)", id)
		return err
	})
	wantRefusal(t, err, "42501", "set by the runtime")
}

// C41: requests reach every run of a tree, past those that have ended or need nothing.
func TestControl_ReachesTheWholeTree_C41(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const limits = ", max_tokens = 100, max_cost_usd = 1, max_nodes = 10, max_wall_ms = 1000, deadline = '2030-01-01Z'"
	root := runIn(t, pool, "status = 'running', owner = 1"+limits)
	middle := []string{
		childIn(t, pool, root, "a", "status = 'succeeded'"+limits),
		childIn(t, pool, root, "b", "status = 'paused', max_tokens = 7"),
		childIn(t, pool, root, "c", "status = 'parked'"+limits),
	}
	var leaves []string
	for _, parent := range middle {
		leaves = append(leaves, childIn(t, pool, parent, "a", "status = 'running', owner = 2"+limits))
	}
	want := func(what, rootState string, middleStates []string, leafState string) {
		t.Helper()
		if got := state(t, pool, root); got != rootState {
			t.Errorf("%s: the root is %q, want %q", what, got, rootState)
		}
		for i := range middle {
			if got := state(t, pool, middle[i]); got != middleStates[i] {
				t.Errorf("%s: child %d is %q, want %q", what, i, got, middleStates[i])
			}
			if got := state(t, pool, leaves[i]); got != leafState {
				t.Errorf("%s: leaf %d is %q, want %q", what, i, got, leafState)
			}
		}
	}
	exec(t, pool, "select pgexec.pause($1)", root)
	want("pause", "running wanted pause inbox 1", []string{"succeeded inbox 0", "paused inbox 0", "paused inbox 1"}, "running wanted pause inbox 1")

	call := "select pgexec.resume($1, add_tokens => 5, add_cost_usd => 0.5, add_nodes => 1, add_wall_ms => 2, deadline => '2031-01-01Z')"
	if got := one[string](t, pool, call, root); got != "resumed" {
		t.Errorf("resume answers %q", got)
	}
	want("resume", "running inbox 2", []string{"succeeded inbox 0", "queued inbox 1 woken", "queued inbox 2 woken"}, "running inbox 2")
	const raised = `select concat_ws(' ', max_tokens, max_cost_usd, max_nodes, max_wall_ms, extract(year from deadline at time zone 'UTC')) from pgexec.runs where run_id = $1`
	for id, limits := range map[string]string{
		root: "105 1.5 11 1002 2031", middle[0]: "100 1 10 1000 2030", middle[1]: "12", middle[2]: "105 1.5 11 1002 2031", leaves[0]: "105 1.5 11 1002 2031",
	} {
		if got := one[string](t, pool, raised, id); got != limits {
			t.Errorf("limits %q, want %q", got, limits)
		}
	}
	// A deadline is not brought forward.
	if got := one[string](t, pool, "select pgexec.resume($1, deadline => '2029-01-01Z')", root); got != "already running" {
		t.Errorf("resume with an earlier deadline answers %q", got)
	}
	exec(t, pool, "select pgexec.cancel($1)", root)
	want("cancel", "running wanted cancel inbox 3",
		[]string{"succeeded inbox 0", "queued wanted cancel inbox 2 woken", "queued wanted cancel inbox 3 woken"}, "running wanted cancel inbox 3")
	if n := one[int](t, pool, "select count(*) from pgexec.run_overview where depth = 2 and parent_node_id = 'a' and waits_for = 'being cancelled'"); n != 3 {
		t.Errorf("%d leaves are shown as being cancelled", n)
	}
	// A run that has ended takes nothing down with it.
	exec(t, pool, "update pgexec.runs set status = 'cancelled', owner = null, wanted = null where run_id = $1", root)
	for _, call := range []string{"cancel", "pause", "resume", "retry"} {
		exec(t, pool, "select pgexec."+call+"($1)", root)
	}
	if got := state(t, pool, leaves[0]); got != "running wanted cancel inbox 3" {
		t.Errorf("after requests to a root that has ended, a leaf is %q", got)
	}
}

// C24: owners are told in notifications below the limit of their size, once each; or not, if the session wants none.
func TestControl_TellsOwners_C24(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const children = 450
	root := runIn(t, pool, "status = 'running', owner = 1")
	exec(t, pool, `insert into pgexec.runs (kind, parent_run_id, parent_node_id) select 'c', $1, 'n' || n from generate_series(1, $2) n`, root, children)
	exec(t, pool, `update pgexec.runs set status = 'running', owner = 1, wake_job = null`)
	listener, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(t.Context())
	for _, statement := range []string{"listen pgexec_control", "select 1"} {
		if _, err := listener.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, "begin; set local pgexec.notify_on_insert = off; select pgexec.pause('"+root+"'); commit")
	exec(t, pool, "select pgexec.cancel($1)", root)
	told := make(map[string]bool)
	for n := 0; len(told) < children+1; n++ {
		note, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 && note.Payload != root {
			t.Errorf("first told is %s", note.Payload)
		}
		for id := range strings.SplitSeq(note.Payload, ",") {
			if told[id] {
				t.Errorf("run %s is told twice", id)
			}
			told[id] = true
		}
		if len(note.Payload) >= 8000 {
			t.Errorf("a notification has %d bytes", len(note.Payload))
		}
	}
}

// A retry takes along the child runs whose failure failed the parent, not those that a node has seen and dealt with.
func TestRetry_TakesTheChildrenThatFailedIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	root := runIn(t, pool, "status = 'failed'")
	seq := 0
	node := func(id string, status pb.NodeStatus, spawned ...*pb.NodeSpec) {
		seq++
		raw, err := proto.Marshal(&pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: id, Kind: "run", Status: status, Spawned: spawned}}})
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, "insert into pgexec.run_log values ($1, $2, $3)", root, seq, raw)
	}
	spec := func(id string, join pb.Join, parents ...string) *pb.NodeSpec {
		return &pb.NodeSpec{Id: id, Kind: "run", Join: join, Parents: parents}
	}
	const ok, bad = pb.NodeStatus_NODE_STATUS_SUCCEEDED, pb.NodeStatus_NODE_STATUS_FAILED
	node("root", ok,
		spec("plain", pb.Join_JOIN_ALL_SUCCEEDED, "root"), spec("seen", pb.Join_JOIN_ALL_SUCCEEDED, "root"),
		spec("seen-later", pb.Join_JOIN_ALL_SUCCEEDED, "root"), spec("mended", pb.Join_JOIN_ALL_SUCCEEDED, "root"),
		spec("skipped", pb.Join_JOIN_ALL_SUCCEEDED, "seen-later"), spec("catch", pb.Join_JOIN_ALL_DONE, "seen", "skipped"))
	for _, id := range []string{"plain", "seen", "seen-later", "mended"} {
		node(id, bad)
	}
	node("mended", ok) // by an earlier retry
	node("catch", ok)
	for name, want := range map[string]string{
		"plain": "queued inbox 1 woken", "seen": "failed inbox 0", "seen-later": "failed inbox 0", "good": "succeeded inbox 0",
	} {
		status := "failed"
		if name == "good" {
			status = "succeeded"
		}
		id := childIn(t, pool, root, name, "status = '"+status+"'")
		defer func() {
			if got := state(t, pool, id); got != want {
				t.Errorf("child %s is %q, want %q", name, got, want)
			}
		}()
		if name == "plain" {
			grandchild := childIn(t, pool, id, "root", "status = 'failed'")
			defer func() {
				if got := state(t, pool, grandchild); got != "queued inbox 1 woken" {
					t.Errorf("grandchild is %q", got)
				}
			}()
		}
	}
	if got := one[string](t, pool, "select pgexec.retry($1)", root); got != "retrying" {
		t.Error(got)
	}
	if got := one[string](t, pool, "select concat_ws(' ', status, num_nonnulls(finished_at, error, result)) from pgexec.runs where run_id = $1", root); got != "queued 0" {
		t.Errorf("the run is %s", got)
	}
}
