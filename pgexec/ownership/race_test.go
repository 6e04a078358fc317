package ownership_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// A last append of the former owner that commits while the claim is on its way
// keeps its place in the log; the claim goes behind it.
func TestClaim_LastAppendWinsItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	w := b.start()
	b.claim(b.claimer(first), w, "claimed")
	b.terminate(first)
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `insert into pgexec.run_log values ($1, 2, $2)`, w.RunID, b.nodeRecord(first.ID(), "last")); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan ownership.ClaimResult, 1)
	go func() {
		res, err := b.claimer(second).Claim(b.ctx, []ownership.Want{{RunID: w.RunID}})
		if err != nil {
			t.Error(err)
		}
		claimed <- res
	}()
	b.eventually("the claim meets the append", func() bool {
		return value[int](b, `select count(*) from pg_locks where locktype = 'transactionid' and not granted
			and pid in (select pid from pg_stat_activity where datname = current_database())`) > 0
	})
	if err := tx.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	if res := <-claimed; len(res.Claimed) != 1 || res.Claimed[0].Head != 3 || res.Claimed[0].Epoch != 2 {
		t.Fatalf("result %+v", res)
	}
	if n := b.checkLog(w.RunID); n != 2 {
		t.Errorf("%d claims", n)
	}
}

// A claim whose connection ends before its commit has claimed nothing, and says so.
func TestClaim_ConnectionEndsBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	b.exec(`create function public.doom() returns trigger language plpgsql as $$
		begin
			if current_setting('application_name') = 'doomed' then
				perform pg_terminate_backend(pg_backend_pid());
			end if;
			return new;
		end $$`)
	b.exec(`create trigger doom before insert on pgexec.run_log for each row execute function public.doom()`)
	cfg, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		t.Fatal(err)
	}
	doomed := true
	cfg.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		if doomed { // the first connection; the question what became of the claim takes another
			conn.RuntimeParams["application_name"] = "doomed"
		}
		doomed = false
		return nil
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c := ownership.NewClaimer(ownership.ClaimerConfig{Pool: pool, ReplicaID: s.ID(), Info: b.info(), Logger: b.log()})

	b.claim(c, w, "busy")
	b.wantRun(w.RunID, "queued owner - epoch 0 wake yes orphaned by -")
	b.wantJob(w.WakeJob, "available")
	b.claim(c, w, "claimed")
}

// C34: indexes are built concurrently, which waits for every transaction that
// is open, while replicas claim, release, die and are buried; nobody waits for
// an advisory lock, and nothing deadlocks.
func TestNothingWaits_IndexBuildsConcurrently(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.startMany(200)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var all sync.WaitGroup
	var claims, burials atomic.Int64
	for range 2 {
		finder := ownership.NewFinder(ownership.FinderConfig{
			Pool: b.pool, Interval: 5 * time.Millisecond, Logger: b.log(),
			BuriedFunc: func(ownership.Buried) { burials.Add(1) },
		})
		all.Go(func() { finder.Run(ctx) })
	}
	for range 3 {
		all.Go(func() { b.comeAndGo(ctx, wants, &claims) })
	}
	waits := 0
	all.Go(func() { waits = b.countWaits(ctx) })

	conn, err := pgx.ConnectConfig(b.ctx, b.connConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	b.eventually("replicas have come and gone", func() bool { return claims.Load() > 0 && burials.Load() > 0 })
	claimed, buried := claims.Load(), burials.Load()
	meanwhile := func() bool { return claims.Load() > claimed && burials.Load() > buried }
	for round := 0; round == 0 || round < 50 && !meanwhile(); round++ {
		b.buildIndexes(conn)
	}
	t.Logf("%d claims and %d burials meanwhile", claims.Load()-claimed, burials.Load()-buried)
	if !meanwhile() {
		t.Error("there were no claims or no burials while indexes were built: the test shows nothing")
	}
	stop()
	all.Wait()
	if waits > 0 {
		t.Errorf("%d times somebody waited for an advisory lock", waits)
	}
	if n := value[int](b, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	for _, w := range wants[:10] {
		b.checkLog(w.RunID)
	}
}

// buildIndexes builds an index of each busy table and removes it.
func (b *bundle) buildIndexes(conn *pgx.Conn) {
	b.t.Helper()
	for i, table := range []string{"runs", "replicas", "river_job", "run_log_default"} {
		name := fmt.Sprintf("extra_%d", i)
		for _, statement := range []string{
			fmt.Sprintf("create index concurrently %s on pgexec.%s ((1))", name, table),
			"drop index concurrently pgexec." + name,
		} {
			ctx, cancel := context.WithTimeout(b.ctx, patience)
			if _, err := conn.Exec(ctx, statement); err != nil {
				b.t.Errorf("%s: %v", statement, err)
			}
			cancel()
		}
	}
}

// comeAndGo is the life of replicas that claim what they can, give half of it
// back, and die. It counts what they claim.
func (b *bundle) comeAndGo(ctx context.Context, wants []ownership.Want, claims *atomic.Int64) {
	for ctx.Err() == nil {
		s, err := ownership.Open(b.ctx, ownership.SessionConfig{ConnConfig: b.connConfig(), Info: b.info(), Logger: b.log()})
		if err != nil {
			b.t.Error(err)
			return
		}
		res, err := b.claimer(s).Claim(b.ctx, wants)
		if err != nil {
			b.t.Error(err)
		}
		claims.Add(int64(len(res.Claimed)))
		half := res.Claimed[:len(res.Claimed)/2]
		if _, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(half...), nil); err != nil {
			b.t.Error(err)
		}
		if _, err := b.pool.Exec(b.ctx, `select pg_terminate_backend(backend_pid) from pgexec.replicas where replica_id = $1`, int32(s.ID())); err != nil {
			b.t.Error(err)
		}
		_ = s.Close(b.ctx) // its session has been ended
	}
}

// countWaits samples the locks that somebody waits for.
func (b *bundle) countWaits(ctx context.Context) (waits int) {
	for ctx.Err() == nil {
		var n int
		err := b.pool.QueryRow(b.ctx, `select count(*) from pg_locks where locktype = 'advisory' and not granted
			and database = (select oid from pg_database where datname = current_database())`).Scan(&n)
		if err != nil {
			b.t.Error(err)
			return waits
		}
		waits += n
	}
	return waits
}

// The same run is claimed, released, lost and found again by several replicas
// at once for a while; whatever the order, its log is clean (G1, G2, G3).
func TestClaim_ReleasesAndDeathsLeaveCleanLogs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.startMany(5)
	finder := ownership.NewFinder(ownership.FinderConfig{Pool: b.pool, Interval: time.Millisecond, Logger: b.log()})
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var found, all sync.WaitGroup
	found.Go(func() { finder.Run(ctx) })
	for n := range 3 {
		all.Go(func() {
			for round := range 10 {
				b.oneLife(wants, fmt.Sprintf("%d-%d", n, round), round%2 == 0)
			}
		})
	}
	all.Wait()
	stop()
	found.Wait()
	for _, w := range wants {
		b.checkLog(w.RunID)
	}
}

// oneLife claims, appends to each run, and releases or dies with appends in flight.
func (b *bundle) oneLife(wants []ownership.Want, name string, dies bool) {
	s, err := ownership.Open(b.ctx, ownership.SessionConfig{ConnConfig: b.connConfig(), Info: b.info(), Logger: b.log()})
	if err != nil {
		b.t.Error(err)
		return
	}
	defer s.Close(b.ctx)
	writer := runlog.NewWriter(runlog.WriterConfig{Pool: b.pool, Logger: b.log()})
	defer writer.Close()
	var bare []ownership.Want
	for _, w := range wants {
		bare = append(bare, ownership.Want{RunID: w.RunID})
	}
	res, err := b.claimer(s).Claim(b.ctx, bare)
	if err != nil {
		b.t.Error(err)
	}
	for _, c := range res.Claimed {
		tail := writer.Open(c.RunID, s.ID(), c.Epoch, c.Head)
		for n := range 20 {
			tail.Append(b.nodeRecord(s.ID(), fmt.Sprintf("%s-%d", name, n)), func(runlog.Seq, error) {})
		}
	}
	if dies {
		if _, err := b.pool.Exec(b.ctx, `select pg_terminate_backend(backend_pid) from pgexec.replicas where replica_id = $1`, int32(s.ID())); err != nil {
			b.t.Error(err)
		}
		return
	}
	if _, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(res.Claimed...), nil); err != nil {
		b.t.Error(err)
	}
}

// C02: a run that is claimed by another between a claim's snapshot and its lock
// is not claimed again on the strength of that snapshot.
func TestClaim_RowThatChangesBeforeTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow, quick := b.open(), b.open()
	w := b.start()
	role := b.role()
	// The rows that this role's claim reads pass a gate.
	for _, statement := range []string{
		`create function public.gate() returns boolean language plpgsql as $$
			begin
				if current_query() like '%insert into pgexec.run_log%' then
					perform pg_advisory_xact_lock_shared(77);
				end if;
				return true;
			end $$`,
		`create policy gate on pgexec.runs to ` + role + ` using (public.gate())`,
		`alter table pgexec.runs enable row level security`,
	} {
		b.exec(statement)
	}
	gate, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Rollback(context.Background())
	if _, err := gate.Exec(b.ctx, `select pg_advisory_xact_lock(77)`); err != nil {
		t.Fatal(err)
	}
	c := ownership.NewClaimer(ownership.ClaimerConfig{Pool: b.poolAs(role), ReplicaID: slow.ID(), Info: b.info(), Logger: b.log()})
	outcome := make(chan string, 1)
	go func() {
		got, _ := b.tryClaim(c, w)
		outcome <- got
	}()
	b.eventually("the claim stands at the gate", func() bool {
		return value[int](b, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`) > 0
	})

	b.claim(b.claimer(quick), w, "claimed")
	if err := gate.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-outcome; got != "busy" {
		t.Errorf("%s, want busy", got)
	}
	b.wantRun(w.RunID, running(quick, 1))
}

// C02: replicas that claim and release the same runs as fast as they can never
// hold one at the same time, and each claim record says which claim it is.
func TestClaim_NeverHeldByTwo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.startMany(40)
	ctx, stop := context.WithTimeout(b.ctx, 2*time.Second)
	defer stop()
	var holders sync.Map // runlog.RunID -> runlog.ReplicaID
	var all sync.WaitGroup
	for range 3 {
		s := b.open()
		c := b.claimer(s)
		all.Go(func() {
			for ctx.Err() == nil {
				res, err := c.Claim(b.ctx, wants)
				if err != nil {
					t.Error(err)
					return
				}
				for _, got := range res.Claimed {
					if other, held := holders.LoadOrStore(got.RunID, s.ID()); held {
						t.Errorf("run %s is claimed by %d and held by %d", got.RunID, s.ID(), other)
					}
					if got.Record.GetClaim().GetEpoch() != int64(got.Epoch) {
						t.Errorf("run %s: the record of claim %d says %d", got.RunID, got.Epoch, got.Record.GetClaim().GetEpoch())
					}
				}
				for _, got := range res.Claimed {
					holders.Delete(got.RunID)
				}
				if _, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(res.Claimed...), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, w := range wants {
		b.checkLog(w.RunID)
	}
}
