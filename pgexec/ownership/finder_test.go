package ownership_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// C14: all runs of a dead replica go back with wakes, and so does a wake job
// it had fetched but not used; nothing of living replicas is touched.
func TestFinder_PutsBackRunsAndJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead, alive := b.open(), b.open()
	lost, kept, fetched, others := b.start(), b.start(), b.start(), b.start()
	b.claim(b.claimer(dead), lost, "claimed")
	b.claim(b.claimer(alive), kept, "claimed")
	b.fetch(fetched, dead)
	b.fetch(others, alive)
	listener := b.listen("pgexec.river_insert")
	b.terminate(dead)

	buried := b.buryOne(b.finder())

	if buried.ReplicaID != dead.ID() || buried.Host != "here" || buried.PID != 7 || !buried.Gone || buried.Jobs != 1 ||
		!slices.Equal(buried.Runs, []runlog.RunID{lost.RunID}) || buried.Silent <= 0 || buried.Silent > patience {
		t.Errorf("buried %+v", buried)
	}
	b.wantRun(lost.RunID, fmt.Sprintf("queued owner - epoch 1 wake yes orphaned by %d", dead.ID()))
	b.wantRun(kept.RunID, running(alive, 1))
	b.wantJob(fetched.WakeJob, "available")
	b.wantJob(others.WakeJob, "running")
	if attempt := value[int](b, `select attempt from pgexec.river_job where id = $1`, fetched.WakeJob); attempt != 0 {
		t.Errorf("a lost worker counts as attempt %d", attempt)
	}
	b.exec(`select pg_notify('pgexec.river_insert', 'end')`)
	if payload := listener(); payload != "end" || !slices.Equal(buried.Queues, []string{"default"}) {
		t.Errorf("the burial notified %s, and queues to tell of are %v", payload, buried.Queues)
	}
	if ids := value[[]int32](b, `select array_agg(replica_id) from pgexec.replicas`); !slices.Equal(ids, []int32{int32(alive.ID())}) {
		t.Errorf("listed are %v", ids)
	}
	got := b.claim(b.claimer(alive), b.wakeOf(lost.RunID), "claimed")
	if got.DeadReplicaID != dead.ID() {
		t.Errorf("the claim names %d as dead", got.DeadReplicaID)
	}
	b.claim(b.claimer(alive), fetched, "claimed")
}

// fetch makes a wake job look as if River had fetched it for that replica.
func (b *bundle) fetch(w ownership.Want, s *ownership.Session) {
	b.t.Helper()
	b.exec(`update pgexec.river_job set state = 'running', attempt = attempt + 1, attempted_at = now(),
		attempted_by = array['pgexec-1', 'pgexec-' || $2::integer] where id = $1`, w.WakeJob, int32(s.ID()))
}

// A finder of a replica never takes its own for dead, and finds nothing where all live.
func TestFinder_AllAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	finder := ownership.NewFinder(ownership.FinderConfig{Pool: b.pool, ReplicaID: first.ID(), Logger: b.log()})
	for range 50 {
		if buried, err := finder.Pass(b.ctx); err != nil || len(buried) != 0 {
			t.Fatalf("buried %v, error %v", buried, err)
		}
	}
	if first.Err() != nil || second.Err() != nil {
		t.Error("a session is lost")
	}
}

// Several finders bury several dead at once: each run is put back once.
func TestFinder_ManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.startMany(60)
	for len(wants) > 0 {
		s := b.open()
		res, err := b.claimer(s).Claim(b.ctx, wants[:20])
		if err != nil || len(res.Claimed) != 20 {
			t.Fatalf("claimed %d, error %v", len(res.Claimed), err)
		}
		b.terminate(s)
		wants = wants[20:]
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	times := make(map[runlog.RunID]int)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	for range 4 {
		finder := ownership.NewFinder(ownership.FinderConfig{
			Pool: b.pool, Interval: time.Millisecond, Logger: b.log(),
			BuriedFunc: func(buried ownership.Buried) {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range buried.Runs {
					times[id]++
				}
			},
		})
		all.Go(func() { finder.Run(ctx) })
	}
	b.eventually("all are buried", func() bool { return value[int](b, `select count(*) from pgexec.replicas`) == 0 })
	stop()
	all.Wait()
	if len(times) != 60 {
		t.Errorf("%d runs were put back", len(times))
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("run %s was put back %d times", id, n)
		}
	}
	if n := value[int](b, `select count(*) from pgexec.river_job where state = 'available'`); n != 60 {
		t.Errorf("%d wakes for 60 runs", n)
	}
}

// C34: a run that somebody has locked keeps its dead owner listed, and the
// rest goes back meanwhile.
func TestFinder_LockedRowIsLeftForLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	locked, free := b.start(), b.start()
	if _, err := b.claimer(s).Claim(b.ctx, []ownership.Want{locked, free}); err != nil {
		t.Fatal(err)
	}
	b.terminate(s)
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = $1 for update`, locked.RunID); err != nil {
		t.Fatal(err)
	}
	finder := b.finder()
	if buried := b.buryOne(finder); buried.Gone || !slices.Equal(buried.Runs, []runlog.RunID{free.RunID}) {
		t.Fatalf("buried %+v", buried)
	}
	if err := tx.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	if buried := b.buryOne(finder); !buried.Gone || !slices.Equal(buried.Runs, []runlog.RunID{locked.RunID}) {
		t.Fatalf("buried %+v", buried)
	}
}

// An owner whose row somebody deleted by hand is listed again and buried.
func TestFinder_UnlistedOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	b.claim(b.claimer(s), w, "claimed")
	b.terminate(s)
	b.exec(`delete from pgexec.replicas`)
	if buried := b.buryOne(b.finder()); buried.ReplicaID != s.ID() || len(buried.Runs) != 1 {
		t.Fatalf("buried %+v", buried)
	}
	b.wantRun(w.RunID, fmt.Sprintf("queued owner - epoch 1 wake yes orphaned by %d", s.ID()))
}

// A late heartbeat alone ends nobody: after a step of the database's clock all
// replicas are late, until their next heartbeat.
func TestFinder_LateHeartbeatThatMovesIsForgiven(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(beatsNever)
	finder := b.finder()
	for range 5 {
		b.exec(`update pgexec.replicas set heartbeat_at = clock_timestamp() - interval '11 s'`) // another one each time
		if _, err := finder.Pass(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetDraining(b.ctx); err != nil { // a heartbeat
		t.Errorf("the session was ended: %v", err)
	}
}

// The backend is named by pid and start: a pid that now belongs to somebody
// else's backend is not ended.
func TestFinder_EndsOnlyTheListedBackend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(beatsNever)
	b.exec(`update pgexec.replicas set heartbeat_at = clock_timestamp() - interval '1 hour', backend_start = backend_start - interval '1 s'`)
	finder := b.finder()
	for range 3 {
		if buried, err := finder.Pass(b.ctx); err != nil || len(buried) != 0 {
			t.Fatalf("buried %v, error %v", buried, err)
		}
	}
	if err := s.SetDraining(b.ctx); err != nil {
		t.Errorf("the session was ended: %v", err)
	}
}

// A role that may not end the frozen replica's session says once what to grant.
func TestFinder_NotPermittedIsSaidOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.poolAs(b.role())
	frozen := b.open(beatsNever)
	b.exec(`update pgexec.replicas set heartbeat_at = clock_timestamp() - interval '1 hour'`)
	var said strings.Builder
	finder := ownership.NewFinder(ownership.FinderConfig{
		Pool: pool, Heartbeat: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&said, nil)),
	})
	for range 5 {
		if buried, err := finder.Pass(b.ctx); err != nil || len(buried) != 0 {
			t.Fatalf("buried %v, error %v", buried, err)
		}
	}
	if n := strings.Count(said.String(), "grant pg_signal_backend"); n != 1 {
		t.Errorf("said %d times what to grant: %s", n, said.String())
	}
	if frozen.Err() != nil {
		t.Error("the session was ended")
	}
}

// ownerChild is a replica in a process of its own: it claims a run, tells, and
// appends when told to.
func ownerChild() {
	ctx := context.Background()
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "owner:", err)
		os.Exit(1)
	}
	cfg, err := pgx.ParseConfig(os.Getenv("OWNER_URL"))
	if err != nil {
		fail(err)
	}
	late, err := time.ParseDuration(os.Getenv("OWNER_LATE_AFTER"))
	if err != nil {
		fail(err)
	}
	pool, err := pgxpool.New(ctx, os.Getenv("OWNER_URL"))
	if err != nil {
		fail(err)
	}
	info := ownership.ReplicaInfo{Host: "child", PID: os.Getpid(), Kinds: []string{"k"}}
	s, err := ownership.Open(ctx, ownership.SessionConfig{ConnConfig: cfg, Info: info, Heartbeat: late / 10, LateAfter: late})
	if err != nil {
		fail(err)
	}
	id, err := runlog.ParseRunID(os.Getenv("OWNER_RUN"))
	if err != nil {
		fail(err)
	}
	claimer := ownership.NewClaimer(ownership.ClaimerConfig{Pool: pool, ReplicaID: s.ID(), Info: info, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	res, err := claimer.Claim(ctx, []ownership.Want{{RunID: id}})
	if err != nil || len(res.Claimed) != 1 {
		fail(fmt.Errorf("claim: %+v, %w", res, err))
	}
	fmt.Println("claimed", int32(s.ID()))
	started := time.Now()
	<-s.Lost()
	fmt.Println("lost", time.Since(started).Milliseconds())
	writer := runlog.NewWriter(runlog.WriterConfig{Pool: pool})
	done := make(chan error, 1)
	tail := writer.Open(id, s.ID(), res.Claimed[0].Epoch, res.Claimed[0].Head)
	tail.Append([]byte("\x0a\x02\x0a\x00"), func(_ runlog.Seq, err error) { done <- err })
	fmt.Println("append:", <-done)
}

func (b *bundle) startOwner(w ownership.Want, lateAfter time.Duration) (*pgtest.Child, runlog.ReplicaID) {
	b.t.Helper()
	child := pgtest.StartChild(b.t, "owner", "OWNER_URL="+b.url, "OWNER_RUN="+w.RunID.String(), "OWNER_LATE_AFTER="+lateAfter.String())
	id, err := strconv.Atoi(strings.TrimPrefix(child.Line("claimed ", patience), "claimed "))
	if err != nil {
		b.t.Fatal(err)
	}
	return child, runlog.ReplicaID(id)
}

// C06: a frozen owner keeps its lock and its connection, and is replaced all
// the same; when it goes on it knows at once that it is lost, and adds nothing.
func TestFinder_FrozenReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const lateAfter = 20 * time.Second // it would not take itself for dead on a busy machine
	w := b.start()
	child, id := b.startOwner(w, lateAfter)
	child.Signal(syscall.SIGSTOP)
	finder := ownership.NewFinder(ownership.FinderConfig{
		Pool: b.pool, Heartbeat: time.Nanosecond, LateAfter: lateAfter, Logger: b.log(),
	})
	if buried, err := finder.Pass(b.ctx); err != nil || len(buried) != 0 {
		t.Fatalf("buried %v before it is late, error %v", buried, err)
	}
	b.exec(`update pgexec.replicas set heartbeat_at = heartbeat_at - $1::interval`, lateAfter) // as if that time had passed
	if buried := b.buryOne(finder); buried.ReplicaID != id || len(buried.Runs) != 1 || buried.Silent < lateAfter {
		t.Fatalf("buried %+v", buried)
	}
	s := b.open()
	b.claim(b.claimer(s), b.wakeOf(w.RunID), "claimed")

	child.Signal(syscall.SIGCONT)
	child.Line("lost ", patience)
	if line := child.Line("append: ", patience); line != "append: "+runlog.ErrFenced.Error() {
		t.Errorf("the former owner's append: %s", line)
	}
	if claims := b.checkLog(w.RunID); claims != 2 {
		t.Errorf("%d claims", claims)
	}
}

// C14: the run of an owner that was killed is free, with a wake, as soon as a pass finds its lock free: nobody
// waits until it is late. How long that takes is measured by BenchmarkTakeoverAfterKill.
func TestFinder_KilledProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	buried := make(chan ownership.Buried, 1)
	finder := ownership.NewFinder(ownership.FinderConfig{
		Pool: b.pool, LateAfter: time.Hour, Logger: b.log(), BuriedFunc: func(found ownership.Buried) { buried <- found },
	})
	var run sync.WaitGroup
	run.Go(func() { finder.Run(ctx) })
	var took []time.Duration
	for range 5 {
		child, id := b.startOwner(b.start(), time.Hour)
		killed := time.Now()
		child.Signal(syscall.SIGKILL)
		select {
		case found := <-buried:
			took = append(took, time.Since(killed))
			if found.ReplicaID != id || len(found.Runs) != 1 {
				t.Fatalf("buried %+v", found)
			}
		case <-time.After(patience):
			t.Fatal("the killed replica is not found")
		}
	}
	stop()
	run.Wait()
	slices.Sort(took)
	t.Logf("from SIGKILL to the burial: %v", took)
}

// Whatever the database's default isolation is, a dead replica is buried read committed: a claim that commits
// before its locks are taken is in what the next statement sees.
func TestFinder_DefaultIsolationDoesNotMatter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`alter database ` + pgx.Identifier{b.pool.Config().ConnConfig.Database}.Sanitize() + ` set default_transaction_isolation = 'repeatable read'`)
	b.pool.Reset()
	b.exec(`create function refuse() returns trigger language plpgsql as $$ begin
		raise exception 'buried in a transaction that is %', current_setting('transaction_isolation'); end $$`)
	b.exec(`create trigger refuse before delete on pgexec.replicas for each row
		when (current_setting('transaction_isolation') <> 'read committed') execute function refuse()`)
	dead, leaves := b.open(), b.open()
	lost, left := b.start(), b.start()
	b.claim(b.claimer(dead), lost, "claimed")
	b.claim(b.claimer(leaves), left, "claimed")
	b.terminate(dead)
	b.waitLost(dead)
	b.buryOne(b.finder())
	b.wantRun(lost.RunID, fmt.Sprintf("queued owner - epoch 1 wake yes orphaned by %d", dead.ID()))
	listener := b.listen("pgexec.river_insert")
	if err := leaves.Close(b.ctx); err != nil {
		t.Fatal(err)
	}
	if payload := listener(); payload != `{"queue" : "default"}` {
		t.Errorf("River was told %s", payload)
	}
	b.wantRun(left.RunID, "queued owner - epoch 1 wake yes orphaned by -")
}

// C17: a run that a replica could not put back when it closed its session, since somebody had locked it, is not that of a
// dead one, whoever takes it on; that of a replica killed in its drain is.
func TestClose_RunThatIsLeftIsNoDeath_C17(t *testing.T) {
	t.Parallel()
	b := setup(t)
	closes, dies, other := b.open(), b.open(), b.open()
	found, claimed, lost := b.start(), b.start(), b.start()
	b.claim(b.claimer(closes), found, "claimed")
	b.claim(b.claimer(closes), claimed, "claimed")
	b.claim(b.claimer(dies), lost, "claimed")
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where owner = $1 for update`, int32(closes.ID())); err != nil {
		t.Fatal(err)
	}
	if err := closes.Close(b.ctx); err != nil {
		t.Fatal(err)
	}
	if err := dies.SetDraining(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.terminate(dies)
	b.wantRun(found.RunID, running(closes, 1))
	if err := tx.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.eventually("the lock is free", func() bool {
		outcome, got := b.tryClaim(b.claimer(other), claimed)
		if outcome == "claimed" && got.DeadReplicaID != 0 {
			t.Errorf("the claim names %d as dead", got.DeadReplicaID)
		}
		return outcome == "claimed"
	})
	finder := b.finder()
	b.eventually("both are buried", func() bool {
		if _, err := finder.Pass(b.ctx); err != nil {
			t.Fatal(err)
		}
		return value[int](b, `select count(*) from pgexec.replicas`) == 1
	})
	b.wantRun(found.RunID, "queued owner - epoch 1 wake yes orphaned by -")
	b.wantRun(lost.RunID, fmt.Sprintf("queued owner - epoch 1 wake yes orphaned by %d", dies.ID()))
}
