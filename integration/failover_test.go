package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// cluster is a primary with an asynchronous standby, and the addresses by which
// replicas reach whatever server is the primary: one for their pools, one for
// their sessions.
type cluster struct {
	t        *testing.T
	data     *proxy
	sessions *proxy
	primary  *pgserver.Server
	standby  *pgserver.Server
}

func newCluster(ctx context.Context, t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, primary: pgtest.Server(t, pgserver.Config{TCP: true})}
	c.data, c.sessions = newProxy(t, address(c.primary)), newProxy(t, address(c.primary))
	c.exec(ctx, c.primary, "postgres", `create database app`)
	c.exec(ctx, c.primary, "postgres", `alter database app set timezone to 'Asia/Kathmandu'`)
	if err := pgexec.Migrate(ctx, c.pool(ctx)); err != nil {
		t.Fatal(err)
	}
	return c
}

func address(s *pgserver.Server) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port()))
}

// pool connects to the primary of the day.
func (c *cluster) pool(ctx context.Context) *pgxpool.Pool { return c.poolAt(ctx, c.data.addr()) }

func (c *cluster) poolAt(ctx context.Context, addr string) *pgxpool.Pool {
	c.t.Helper()
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/app", RawQuery: "sslmode=disable&pool_max_conns=16"}
	pool, err := pgxpool.New(ctx, u.String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(pool.Close)
	return pool
}

// serve runs replicas that follow the primary of the day.
func (c *cluster) serve(ctx context.Context, replicas int) (stop func()) {
	c.t.Helper()
	session := c.poolAt(ctx, c.sessions.addr()).Config().ConnConfig
	var stops []func()
	for i := range replicas {
		cfg := pgexec.Config{Kinds: planKinds(), Host: fmt.Sprintf("r%d", i), SessionConn: session, PoisonAfter: 1000}
		stops = append(stops, serve(c.t, c.pool(ctx), cfg))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// exec runs one statement on a server itself.
func (c *cluster) exec(ctx context.Context, s *pgserver.Server, database, statement string) {
	c.t.Helper()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, statement); err != nil {
		c.t.Fatalf("%s: %v", statement, err)
	}
}

func (c *cluster) addStandby(ctx context.Context) {
	c.t.Helper()
	standby, err := c.primary.Standby(ctx, pgserver.Config{TCP: true})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			c.t.Errorf("stop standby: %v", err)
		}
	})
	c.standby = standby
}

// cutOff ends the standby's streaming: what commits from now on will be lost.
func (c *cluster) cutOff(ctx context.Context) {
	c.t.Helper()
	c.exec(ctx, c.standby, "postgres", `alter system set primary_conninfo = ''`)
	c.exec(ctx, c.standby, "postgres", `select pg_reload_conf()`)
	conn, err := pgx.Connect(ctx, c.standby.URL("postgres"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for receiving := true; receiving; pause(ctx, c.t) {
		if err := conn.QueryRow(ctx, `select exists (select from pg_stat_wal_receiver)`).Scan(&receiving); err != nil {
			c.t.Fatal(err)
		}
	}
}

// failOver loses the primary, makes the standby the new one and returns where the logs end on it.
func (c *cluster) failOver(ctx context.Context) map[runlog.RunID]int64 {
	c.t.Helper()
	c.data.pointTo("")
	c.sessions.pointTo("")
	c.lose(ctx, c.primary)
	c.promote(ctx)
	left := heads(ctx, c.t, c.poolAt(ctx, address(c.primary)))
	c.data.pointTo(address(c.primary))
	c.sessions.pointTo(address(c.primary))
	return left
}

func (c *cluster) lose(ctx context.Context, s *pgserver.Server) {
	c.t.Helper()
	if err := s.Shutdown(ctx, pgserver.Immediate); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) promote(ctx context.Context) {
	c.t.Helper()
	if err := c.standby.Promote(ctx); err != nil {
		c.t.Fatal(err)
	}
	c.primary, c.standby = c.standby, nil
}

// G2 through failovers that lose the newest commits: runs whose last records,
// claims or ends are gone go on from what is left. Every log that exists stays
// a clean prefix with each node once, and every run that exists ends with the
// result of the model.
func TestReplicas_FailoverThatLosesCommits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	c := newCluster(ctx, t)
	pool := c.pool(ctx)
	// Not left to the test's cleanup, before which the last server ends.
	defer c.serve(ctx, 3)()
	const rounds = 2
	lost := 0
	for range rounds {
		c.addStandby(ctx)
		before := c.growApart(ctx, pool)
		lost += missing(before, c.failOver(ctx))
		pool.Reset() // its connections ended with the primary
	}
	t.Logf("%d records were lost in %d failovers", lost, rounds)
	if lost == 0 {
		t.Error("no commit was lost: the test shows nothing")
	}
	checkSurvivors(ctx, t, pool)
}

// G2, G3 where a failover is seen only in part: the sessions of all replicas
// stay with the former primary, which confirms their heartbeats, while their
// appends already reach the new one, where commits they rely on are missing and
// a replica that knows better has claimed their runs and writes in the place of
// what was lost. The fence alone keeps the logs clean.
func TestReplicas_FailoverThatSessionsDoNotSee(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	c := newCluster(ctx, t)
	pool := c.pool(ctx)
	defer c.serve(ctx, 3)()
	c.addStandby(ctx)
	before := c.growApart(ctx, pool)
	former := c.primary
	c.data.pointTo("")
	c.promote(ctx)
	direct := c.poolAt(ctx, address(c.primary))
	lost := missing(before, heads(ctx, t, direct))
	t.Logf("%d records were lost", lost)
	if lost == 0 {
		t.Error("no commit was lost: the test shows nothing")
	}
	more := growth(ctx, t, direct)
	defer serve(t, direct, pgexec.Config{Kinds: planKinds(), Host: "fresh", PoisonAfter: 1000})()
	more(lost) // now some logs end where their former owners believe that they do
	c.data.pointTo(address(c.primary))
	more(200)
	c.lose(ctx, former)
	c.sessions.pointTo(address(c.primary))
	checkSurvivors(ctx, t, pool)
}

// growApart inserts runs, lets the standby follow for a part of their work and not
// for some more, and returns where the logs end that only the primary has.
func (c *cluster) growApart(ctx context.Context, pool *pgxpool.Pool) map[runlog.RunID]int64 {
	c.t.Helper()
	for range 30 {
		insertPlan(ctx, c.t, pool)
	}
	more := growth(ctx, c.t, pool)
	more(200)
	c.cutOff(ctx)
	insertPlan(ctx, c.t, pool)
	more(200)
	return heads(ctx, c.t, pool)
}

// planKinds runs plans as the replica processes do.
func planKinds() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "step", runStep, nil)
	return kinds
}

func insertPlan(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, `
		insert into pgexec.runs (kind, input)
		values ('step', jsonb_build_object('shape', $1::text, 'seed', $2::bigint, 'index', 0))`,
		shapeNames[rand.IntN(len(shapeNames))], rand.Int64N(1<<40))
	if err != nil {
		t.Fatal(err)
	}
}

// growth returns a function that waits until the logs together have grown by so many records more.
func growth(ctx context.Context, t *testing.T, pool *pgxpool.Pool) func(records int) {
	const count = `select count(*) from pgexec.run_log`
	goal := query[int](ctx, t, pool, count)
	return func(records int) {
		goal += records
		eventually(ctx, t, pool, `select count(*) >= $1 from pgexec.run_log`, goal)
	}
}

// heads reads where each log ends.
func heads(ctx context.Context, t *testing.T, pool *pgxpool.Pool) map[runlog.RunID]int64 {
	t.Helper()
	rows, err := pool.Query(ctx, `select run_id, max(seq) from pgexec.run_log group by run_id`)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[runlog.RunID]int64)
	var id runlog.RunID
	var head int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &head}, func() error {
		found[id] = head
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// missing counts the records that are gone.
func missing(before, after map[runlog.RunID]int64) int {
	lost := 0
	for id, head := range before {
		lost += int(max(0, head-after[id]))
	}
	return lost
}

// checkSurvivors waits until every run that is left has ended and compares it with the model of its plan.
func checkSurvivors(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const over = `select not exists (select from pgexec.runs where status not in ('succeeded', 'failed', 'cancelled', 'paused'))`
	deadline := time.Now().Add(2 * patience)
	for ended := false; !ended; pause(ctx, t) {
		// The last connections to a former primary break here.
		if err := pool.QueryRow(ctx, over).Scan(&ended); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the runs do not end")
		}
	}
	rows, err := pool.Query(ctx, `select run_id, input->>'shape', (input->>'seed')::bigint from pgexec.runs`)
	if err != nil {
		t.Fatal(err)
	}
	var all []insertedRun
	var run insertedRun
	if _, err := pgx.ForEachRow(rows, []any{&run.id, &run.shape, &run.seed}, func() error {
		all = append(all, run)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var total tally
	for _, run := range all {
		total.add(checkRun(ctx, t, pool, run, nil))
	}
	t.Logf("%d runs are left, with %d nodes and %d claims", len(all), total.nodes, total.claims)
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.run_log l where not exists (select from pgexec.runs r where r.run_id = l.run_id)`); n != 0 {
		t.Errorf("%d records are of runs that do not exist", n)
	}
}
