package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

const killSessions = `select count(pg_terminate_backend(backend_pid)) from pgexec.replicas where host = $1`

// mortals are replicas, by host, that end for good with their session, as a process does that is killed.
type mortals map[string]*replica

func (m mortals) start(b *bundle, kinds *pgexec.Kinds, hosts ...string) {
	for _, host := range hosts {
		m[host] = b.replica(kinds, named(host))
	}
}

// killOwner kills the replica that runs the caller, and returns as its handler does then.
func (m mortals) killOwner(ctx context.Context, b *bundle, id pgexec.RunID) (int, error) {
	var host string
	const ownerOf = `select p.host from pgexec.runs r join pgexec.replicas p on p.replica_id = r.owner where r.run_id = $1`
	if err := b.pool.QueryRow(ctx, ownerOf, id).Scan(&host); err != nil {
		b.t.Error(err)
		return 0, err
	}
	m[host].stop()
	if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, host); err != nil {
		b.t.Error(err)
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// named gives a replica a host name by which a test finds its row.
func named(host string) func(*pgexec.Config) {
	return func(c *pgexec.Config) { c.Host = host }
}

// blocker is a kind whose attempts report their start and then wait for the
// gate or the end of their context.
type blocker struct {
	started chan string // host of the replica that runs it
	causes  chan error  // why a context ended
	gate    chan struct{}
}

func newBlocker() *blocker {
	return &blocker{started: make(chan string, 100), causes: make(chan error, 100), gate: make(chan struct{})}
}

func (bl *blocker) kinds(host string) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "block", func(ctx context.Context, n *pgexec.Node, _ none) (string, error) {
		bl.started <- host
		select {
		case <-bl.gate:
			return fmt.Sprintf("attempt %d on %s", n.Attempt(), host), nil
		case <-ctx.Done():
			bl.causes <- context.Cause(ctx)
			return "", ctx.Err()
		}
	}, nil)
	return kinds
}

// C17, C21: a drain that cuts a node off is no attempt and no end of the run:
// the handler learns the cause, and the node runs again elsewhere.
func TestRun_DrainIsNoAttempt(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	var owners []string
	for i := range 5 {
		host := fmt.Sprintf("r%d", i)
		owners = append(owners, host)
		r := b.replica(bl.kinds(host), named(host), func(c *pgexec.Config) { c.Grace = 10 * time.Millisecond })
		if i == 0 {
			b.start("block", nil)
		}
		if got := receive(t, "start", bl.started); got != host {
			t.Fatalf("started on %s, want %s", got, host)
		}
		if i == 4 {
			close(bl.gate)
			break
		}
		r.drain()
		if cause := receive(t, "cause", bl.causes); !errors.Is(cause, pgexec.ErrDraining) {
			t.Fatalf("cause of a drain is %v", cause)
		}
	}
	id := query[pgexec.RunID](b, `select run_id from pgexec.runs`)
	run := b.succeed(id)
	if got, want := string(run.Result), `"attempt 1 on r4"`; got != want {
		t.Errorf("result %s, want %s", got, want)
	}
	if run.Epoch != int64(len(owners)) {
		t.Errorf("%d claims, want %d", run.Epoch, len(owners))
	}
	b.checkLog(id)
}

// A drain waits for nodes in flight, records them and hands the run over at
// once, while another run's slow node still keeps the replica (C20).
func TestRuntime_DrainReleasesEachRunOnItsOwn(t *testing.T) {
	b := setup(t)
	slow, quick := newBlocker(), make(chan struct{})
	onSecond := make(chan struct{}, 1)
	kindsOf := func(host string) *pgexec.Kinds {
		kinds := slow.kinds(host)
		pgexec.AddKind(kinds, "step", func(_ context.Context, n *pgexec.Node, last bool) (string, error) {
			if !last {
				n.Spawn("step", true, nil)
				slow.started <- host
				<-quick
			} else if host == "second" {
				onSecond <- struct{}{}
			}
			return host, nil
		}, nil)
		return kinds
	}
	first := b.replica(kindsOf("first"), named("first"))
	slowID, stepID := b.start("block", nil), b.start("step", false)
	receive(t, "start", slow.started)
	receive(t, "start", slow.started)
	b.replica(kindsOf("second"), named("second"))
	b.eventually(`select count(*) = 2 from pgexec.replicas`)
	first.stop()
	b.eventually(`select draining from pgexec.replicas where host = 'first'`)
	if first.State() != pgexec.StateDraining {
		t.Errorf("state %v while draining", first.State())
	}
	close(quick)
	receive(t, "next node of the quick run on the second replica", onSecond)
	if got := string(b.succeed(stepID).Result); got != `"second"` {
		t.Errorf("last step ran on %s", got)
	}
	select {
	case <-first.done:
		t.Error("the draining replica did not wait for its slow node")
	default:
	}
	close(slow.gate)
	first.drain()
	if got := string(b.succeed(slowID).Result); got != `"attempt 1 on first"` {
		t.Errorf("the slow node's record says %s", got)
	}
	if n := query[int](b, `select epoch from pgexec.runs where run_id = $1`, slowID); n != 1 {
		t.Errorf("the slow run was claimed %d times", n)
	}
}

// C19: a handler that ignores its context does not keep a deploy waiting; its late result is fenced.
func TestRuntime_StubbornHandlerDoesNotHoldTheDrain(t *testing.T) {
	b := setup(t)
	gate, returned := make(chan struct{}), make(chan struct{})
	started := make(chan struct{}, 1)
	stubborn := pgexec.NewKinds()
	pgexec.AddKind(stubborn, "work", func(context.Context, *pgexec.Node, none) (string, error) {
		defer close(returned)
		started <- struct{}{}
		<-gate
		return "late", nil
	}, nil)
	first := b.replica(stubborn, named("first"), func(c *pgexec.Config) { c.Grace = time.Millisecond })
	id := b.start("work", nil)
	receive(t, "start", started)
	first.drain()
	prompt := pgexec.NewKinds()
	pgexec.AddKind(prompt, "work", func(context.Context, *pgexec.Node, none) (string, error) { return "prompt", nil }, nil)
	b.replica(prompt, named("second"))
	if got := string(b.succeed(id).Result); got != `"prompt"` {
		t.Errorf("result %s", got)
	}
	close(gate)
	receive(t, "return of the stubborn handler", returned)
	b.checkLog(id)
}

// C04: the server drops the session under its owner. The owner notices, cancels
// its handlers with a cause and comes back with a new id; the run goes on.
func TestRuntime_StartsAgainAfterItsSessionEnds(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	r := b.replica(bl.kinds("only"), named("only"))
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	before := query[int](b, `select replica_id from pgexec.replicas`)
	if n := query[int](b, killSessions, "only"); n != 1 {
		t.Fatalf("%d sessions ended", n)
	}
	if cause := receive(t, "cause", bl.causes); !errors.Is(cause, pgexec.ErrOwnershipLost) {
		t.Errorf("cause is %v", cause)
	}
	receive(t, "second start", bl.started)
	close(bl.gate)
	run := b.succeed(id)
	if got := string(run.Result); got != `"attempt 1 on only"` {
		t.Errorf("result %s: a lost session was counted as an attempt", got)
	}
	if after := query[int](b, `select replica_id from pgexec.replicas`); after == before {
		t.Error("the replica kept its id")
	}
	if r.State() != pgexec.StateReady {
		t.Errorf("state %v", r.State())
	}
	b.checkLog(id)
}

// C18: a run whose owners keep dying is paused after three deaths without
// progress, with the nodes in flight named, and none of those that waited; progress in between starts the count again.
func TestRun_PausedAfterThreeDeathsWithoutProgress(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `select pgexec.declare_kind('outside')`); err != nil {
		t.Fatal(err)
	}
	var starts atomic.Int32
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
		for range 101 { // more than can be named
			n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "never"}, nil)
		}
		n.Spawn("outside", nil, nil)
		n.Spawn("flaky", nil, nil)
		n.Spawn("killer", nil, &pgexec.SpawnOpts{ID: "bomb"})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "flaky", func(context.Context, *pgexec.Node, none) (int, error) {
		return 0, pgexec.RetryAfter(errors.New("not now"), time.Hour)
	}, nil)
	m := make(mortals)
	pgexec.AddKind(kinds, "killer", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
		b.eventually(`select exists (select from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'attempt_failed')`, n.RunID())
		starts.Add(1)
		return m.killOwner(ctx, b, n.RunID())
	}, nil)
	m.start(b, kinds, "a", "b", "c", "d")
	id := b.start("root", nil)
	b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
	if n := starts.Load(); n != 3 {
		t.Errorf("the node ran %d times, want 3", n)
	}
	run, err := b.client.Get(b.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(run.Reason, "3 replicas died") || !strings.Contains(run.Reason, "bomb") {
		t.Errorf("reason %q", run.Reason)
	}
	const suspects = `select pgexec.decode(record) #>> '{control,node_ids}' from pgexec.run_log where run_id = $1 order by seq desc limit 1`
	if got := query[string](b, suspects, id); got != `["bomb"]` {
		t.Errorf("suspect in the log: %s", got)
	}
	b.checkLog(id)
}

// C10, C18: sessions that end under processes that live on, as in each restart of Postgres, are no deaths, however many there are.
func TestRun_LostSessionsOfLivingReplicasDoNotPauseIt(t *testing.T) {
	b := setup(t)
	const losses = 7
	var starts atomic.Int32
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "slow", func(ctx context.Context, _ *pgexec.Node, _ none) (int, error) {
		if starts.Add(1) > losses {
			return 0, nil
		}
		if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, "survivor"); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}, nil)
	b.replica(kinds, named("survivor"))
	id := b.start("slow", nil)
	b.succeed(id)
	if n := starts.Load(); n != losses+1 {
		t.Errorf("the node ran %d times, want %d", n, losses+1)
	}
	if n := query[int](b, `select cardinality(former_ids) from pgexec.replicas`); n != losses {
		t.Errorf("the replica lists %d former ids, want %d", n, losses)
	}
	b.checkLog(id)
}

// C10: Postgres restarts under running replicas; every run still ends, without
// a restart of pgexec.
func TestRuntime_SurvivesARestartOfPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{})
	b := bundleOn(t, pgtest.DBOn(t, server))
	kinds := pgexec.NewKinds()
	var inFlight sync.WaitGroup
	inFlight.Add(20)
	var once [20]sync.Once
	gate := make(chan struct{})
	pgexec.AddKind(kinds, "step", func(ctx context.Context, n *pgexec.Node, i int) (int, error) {
		if n.ID() != pgexec.RootID {
			return i, nil
		}
		once[i].Do(inFlight.Done)
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		n.Spawn("step", i, nil)
		return i, nil
	}, nil)
	b.replica(kinds, named("a"))
	b.replica(kinds, named("b"))
	var ids []pgexec.RunID
	for i := range 20 {
		ids = append(ids, b.start("step", i))
	}
	inFlight.Wait()
	if err := server.Restart(b.ctx, pgserver.Immediate); err != nil {
		t.Fatal(err)
	}
	close(gate)
	for _, id := range ids {
		waitThroughOutage(b, id)
		b.checkLog(id)
	}
}

// waitThroughOutage waits for a run though reads may fail meanwhile.
func waitThroughOutage(b *bundle, id pgexec.RunID) {
	b.t.Helper()
	for {
		run, err := b.client.Wait(b.ctx, id)
		switch {
		case b.ctx.Err() != nil:
			b.t.Fatal(b.ctx.Err())
		case err == nil && run.Status == pgexec.RunSucceeded:
			return
		case err == nil:
			b.t.Fatalf("run %s: %s", run.Status, run.Error)
		}
	}
}

// C01, C02: wake jobs delivered twice, to several replicas, never make two claims of a run that is owned.
func TestRuntime_DuplicateWakesAreHarmless(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	b.replica(bl.kinds("a"), named("a"))
	b.replica(bl.kinds("b"), named("b"))
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	_, err := b.pool.Exec(b.ctx, `insert into pgexec.river_job (args, kind, max_attempts)
		select jsonb_build_object('run_id', $1::uuid), 'pgexec_wake', 25 from generate_series(1, 200)`, id)
	if err != nil {
		t.Fatal(err)
	}
	b.eventually(`select not exists (select from pgexec.river_job where state in ('available', 'running'))`)
	close(bl.gate)
	run := b.succeed(id)
	if run.Epoch != 1 {
		t.Errorf("claimed %d times", run.Epoch)
	}
	if len(bl.started) != 0 {
		t.Errorf("the node started %d more times", len(bl.started))
	}
}
