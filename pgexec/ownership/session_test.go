package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/sql"
)

const lockOf = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1885824376
	and objid = $1::integer::oid and granted and pid = $2`

func TestSession_ListedAndLockedUntilClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(func(cfg *ownership.SessionConfig) { cfg.Info.Queues = nil })
	pid := b.backend(s)

	if n := value[int](b, lockOf, int32(s.ID()), pid); n != 1 {
		t.Errorf("%d locks, want 1", n)
	}
	row := value[string](b, `select concat_ws(' ', host, pid, version, kinds, queues, max_hot_runs, hot_runs, draining)
		from pgexec.replicas where replica_id = $1`, int32(s.ID()))
	if row != "here 7 test {k} {} 10 0 f" {
		t.Errorf("row %q", row)
	}
	if name := value[string](b, `select application_name from pg_stat_activity where pid = $1`, pid); name != fmt.Sprintf("pgexec session %d", s.ID()) {
		t.Errorf("application_name %q", name)
	}
	if err := s.Close(b.ctx); err != nil {
		t.Fatal(err)
	}
	if n := value[int](b, `select count(*) from pgexec.replicas`); n != 0 {
		t.Error("a closed session is still listed")
	}
	b.eventually("the lock is free", func() bool { return value[int](b, lockOf, int32(s.ID()), pid) == 0 })
	if s.Err() != nil {
		t.Errorf("a closed session is not a lost one: %v", s.Err())
	}
	if s.Outlived() {
		t.Error("a closed session is not outlived")
	}
}

// cancelAfter calls cancel when a statement begins.
type cancelAfter struct {
	statement string
	cancel    context.CancelFunc
}

func (c cancelAfter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL == c.statement {
		c.cancel()
	}
	return ctx
}

func (cancelAfter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A replica that is stopped while it starts stays on no list, though it may be the last one and nobody finds it dead.
func TestOpen_StoppedMeanwhileIsListedNowhere(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{sql.OwnershipSessionLock, sql.OwnershipSessionInsert, sql.OwnershipSessionListen} {
		b := setup(t)
		ctx, cancel := context.WithCancel(b.ctx)
		conn := b.connConfig()
		conn.Tracer = cancelAfter{statement, cancel}
		s, err := ownership.Open(ctx, ownership.SessionConfig{ConnConfig: conn, Info: b.info(), Logger: b.log()})
		if ctx.Err() == nil {
			t.Errorf("not stopped: %s", statement)
		}
		if err == nil {
			if err := s.Close(b.ctx); err != nil {
				t.Error(err)
			}
		}
		if n := value[int](b, `select count(*) from pgexec.replicas`); n != 0 {
			t.Errorf("%d replicas are listed", n)
		}
		cancel()
	}
}

// What a replica still owns when it closes goes back, and it is no death.
func TestSession_CloseGivesBackWhatIsOwned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	b.claim(b.claimer(s), w, "claimed")
	if err := s.Close(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.wantRun(w.RunID, "queued owner - epoch 1 wake yes orphaned by -")
}

func TestSession_HeartbeatShowsHotRunsAndDrain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(func(cfg *ownership.SessionConfig) {
		cfg.HotRunsFunc = func() int { return 42 }
		beatsNever(cfg) // only the drain causes a heartbeat
	})
	if err := s.SetDraining(b.ctx); err != nil {
		t.Fatal(err)
	}
	row := value[string](b, `select concat_ws(' ', hot_runs, draining, heartbeat_at > started_at) from pgexec.replicas`)
	if row != "42 t t" {
		t.Errorf("row %q", row)
	}
	if err := s.SetDraining(b.ctx); err != nil {
		t.Errorf("second time: %v", err)
	}
}

func TestSession_HeartbeatMoves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(func(cfg *ownership.SessionConfig) { cfg.Heartbeat = 20 * time.Millisecond })
	first := value[time.Time](b, `select heartbeat_at from pgexec.replicas`)
	for range 3 {
		b.eventually("the heartbeat moves", func() bool {
			next := value[time.Time](b, `select heartbeat_at from pgexec.replicas`)
			moved := next.After(first)
			first = next
			return moved
		})
	}
}

// C06, C18: a process that stood still until others may have ended its session has not outlived it: what it ran may be why.
func TestSession_ThatStoodStillIsNotOutlived(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const late = 4 * time.Second
	s := b.open(func(c *ownership.SessionConfig) {
		c.Heartbeat, c.LateAfter = late/4, late
		c.HotRunsFunc = func() int {
			<-time.After(late) // called on the way to a heartbeat, which stands still with it
			return 0
		}
	})
	b.waitLost(s)
	if s.Outlived() {
		t.Errorf("outlived, though lost because: %v", s.Err())
	}
}

// C04: a session that the server ends is noticed at once, not with the next heartbeat, and the log
// refuses the former owner from the moment the run is put back.
func TestSession_TerminatedIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(beatsNever)
	ended := time.Now()
	b.terminate(s)
	b.waitLost(s)
	t.Logf("noticed after %s", time.Since(ended))
	if err := s.Err(); !errors.Is(err, ownership.ErrSessionLost) {
		t.Errorf("error %v", err)
	}
	var pgErr *pgconn.PgError
	if !errors.As(s.Err(), &pgErr) || pgErr.Code != "57P01" {
		t.Errorf("error %v does not say that an administrator ended the session", s.Err())
	}
	if !s.Outlived() {
		t.Error("the process is taken for one that stood still")
	}
	if err := s.SetDraining(b.ctx); !errors.Is(err, ownership.ErrSessionLost) {
		t.Errorf("SetDraining: error %v", err)
	}
	if err := s.Close(b.ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Whoever finds that its row is gone has been declared dead.
func TestSession_DeclaredDeadIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(func(cfg *ownership.SessionConfig) { cfg.Heartbeat = 20 * time.Millisecond })
	b.exec(`delete from pgexec.replicas`)
	b.waitLost(s)
}

// A replica that cannot show a heartbeat gives itself up before others may,
// although its connection is well.
func TestSession_GivesUpBeforeOthersDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const late = 8 * time.Second // on a busy machine the question below comes later than the loss
	s := b.open(func(cfg *ownership.SessionConfig) { cfg.Heartbeat, cfg.LateAfter = 50*time.Millisecond, late })
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.replicas for update`); err != nil {
		t.Fatal(err)
	}
	b.waitLost(s)
	if age := value[float64](b, `select extract(epoch from clock_timestamp() - heartbeat_at)::float8 from pgexec.replicas`); age >= late.Seconds() {
		t.Errorf("lost when the heartbeat was %.2f s old, others wait %s", age, late)
	}
}

// A replica that the network has cut off stops before others may take its runs:
// its lock is still held when it gives up.
func TestSession_CutOffGivesUpBeforeItsLockIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var network line
	s := b.open(func(cfg *ownership.SessionConfig) {
		cfg.Heartbeat, cfg.LateAfter = 50*time.Millisecond, 8*time.Second
		network.through(cfg.ConnConfig)
	})
	pid := b.backend(s)
	finder := ownership.NewFinder(ownership.FinderConfig{Pool: b.pool, Heartbeat: 50 * time.Millisecond, LateAfter: 8 * time.Second, Logger: b.log()})
	defer network.cut()
	network.dark.Store(true)
	b.waitLost(s)
	if n := value[int](b, lockOf, int32(s.ID()), pid); n != 1 {
		t.Error("the lock was free before the replica gave up")
	}
	if !errors.Is(s.Err(), context.DeadlineExceeded) {
		t.Errorf("error %v", s.Err())
	}
	if buried := b.buryOne(finder); buried.ReplicaID != s.ID() || buried.Silent < time.Second {
		t.Errorf("buried %+v", buried)
	}
}

// C32: the replica's clock is the database's, whatever the client's clock and
// the session's time zone are.
func TestSession_NowIsTheDatabaseClock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began := time.Now()
	s := b.open()
	before := value[time.Time](b, `select clock_timestamp()`)
	got := s.Now()
	after := value[time.Time](b, `select clock_timestamp()`)
	slack := time.Since(began) // no heartbeat was on its way for longer
	if got.Before(before.Add(-slack)) || got.After(after.Add(slack)) {
		t.Errorf("now is %s, the database's clock was between %s and %s", got, before, after)
	}
	if got.Location() != time.UTC {
		t.Errorf("now is in %s", got.Location())
	}
}

func TestOpen_NoServer(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	_, err = ownership.Open(t.Context(), ownership.SessionConfig{ConnConfig: cfg})
	var connectErr *pgconn.ConnectError
	var pooler *ownership.PoolerError
	if !errors.As(err, &connectErr) || errors.As(err, &pooler) {
		t.Errorf("error %v", err)
	}
}

func TestOpen_LateAfterHasRoomForHeartbeats(t *testing.T) {
	t.Parallel()
	_, err := ownership.Open(t.Context(), ownership.SessionConfig{ConnConfig: &pgx.ConnConfig{}, LateAfter: time.Second})
	if err == nil {
		t.Error("a heartbeat of 1 s with LateAfter 1 s is accepted")
	}
}

// G8, C09: the locks of a replica do not grow with the runs it owns.
func TestSession_LocksDoNotGrowWithRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, idle := b.open(), b.open()
	wants := b.startMany(2000)
	c := b.claimer(s)
	for len(wants) > 0 {
		n := min(256, len(wants))
		res, err := c.Claim(b.ctx, wants[:n])
		if err != nil || len(res.Claimed) != n {
			t.Fatalf("claimed %d of %d, error %v", len(res.Claimed), n, err)
		}
		wants = wants[n:]
	}
	held, err := ownership.Owned(b.ctx, b.pool, s.ID())
	if err != nil || len(held) != 2000 {
		t.Fatalf("%d runs owned, error %v", len(held), err)
	}
	if n := value[int](b, `select count(*) from pg_locks where locktype = 'advisory' and classid = 1885824376
		and database = (select oid from pg_database where datname = current_database())`); n != 2 {
		t.Errorf("2 replicas with 2,000 runs hold %d locks", n)
	}
	if n := value[int](b, `select count(*) from pg_locks where pid = any ($1)`, []int32{b.backend(s), b.backend(idle)}); n != 2 {
		t.Errorf("the two sessions hold %d locks of all sorts", n)
	}
}

// C10: after a restart of the server every run goes on, without a restart of
// anything that was there before.
func TestServerRestart_RunsGoOn(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{})
	pool := pgtest.DBOn(t, server)
	b := &bundle{t: t, pool: pool, url: pool.Config().ConnString(), ctx: t.Context()}
	finder := b.finder()
	for _, mode := range []pgserver.Mode{pgserver.Fast, pgserver.Immediate} {
		s := b.open(beatsNever)
		w := b.start()
		b.claim(b.claimer(s), w, "claimed")
		if err := server.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		b.waitLost(s)
		b.eventually("the server answers", func() bool { return pool.Ping(t.Context()) == nil })
		buried := b.buryOne(finder)
		if len(buried.Runs) != 1 || buried.Runs[0] != w.RunID {
			t.Fatalf("%s restart: buried %+v", mode, buried)
		}
		next := b.open()
		got := b.claim(b.claimer(next), b.wakeOf(w.RunID), "claimed")
		if got.DeadReplicaID != s.ID() {
			t.Errorf("%s restart: the claim names %d as dead, want %d", mode, got.DeadReplicaID, s.ID())
		}
		if err := next.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
