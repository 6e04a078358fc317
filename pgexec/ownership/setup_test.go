package ownership_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

func TestMain(m *testing.M) {
	pgtest.RunChild(map[string]func(){"owner": ownerChild})
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for something that has to happen.
const patience = time.Minute

// bundle is one test's database and what it is looked at with.
type bundle struct {
	t    testing.TB
	pool *pgxpool.Pool
	url  string
	ctx  context.Context
}

func setup(t testing.TB) *bundle {
	t.Helper()
	return &bundle{t: t, pool: pgtest.DB(t), url: pgtest.URL(t), ctx: t.Context()}
}

func (b *bundle) log() *slog.Logger { return slog.New(slog.NewTextHandler(b.t.Output(), nil)) }

func (b *bundle) connConfig() *pgx.ConnConfig {
	b.t.Helper()
	cfg, err := pgx.ParseConfig(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	return cfg
}

func (b *bundle) info() ownership.ReplicaInfo {
	return ownership.ReplicaInfo{Host: "here", PID: 7, Version: "test", Kinds: []string{"k"}, Queues: []string{"default"}, MaxHotRuns: 10}
}

// open opens a session that the test's end closes.
func (b *bundle) open(change ...func(*ownership.SessionConfig)) *ownership.Session {
	b.t.Helper()
	cfg := ownership.SessionConfig{ConnConfig: b.connConfig(), Info: b.info(), Logger: b.log()}
	for _, c := range change {
		c(&cfg)
	}
	s, err := ownership.Open(b.ctx, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close(context.Background()) }) // the error of a lost session says nothing new
	return s
}

// beatsNever has a session show no heartbeat while a test lasts: only its
// connection tells that it has ended.
func beatsNever(cfg *ownership.SessionConfig) {
	cfg.Heartbeat, cfg.LateAfter = time.Hour, 4*time.Hour
}

func (b *bundle) claimer(s *ownership.Session) *ownership.Claimer {
	return ownership.NewClaimer(ownership.ClaimerConfig{Pool: b.pool, ReplicaID: s.ID(), Info: b.info(), Logger: b.log()})
}

// finder is a finder of no replica. It finds late whoever was silent for a
// second, as soon as two passes agree.
func (b *bundle) finder() *ownership.Finder {
	return ownership.NewFinder(ownership.FinderConfig{
		Pool: b.pool, Heartbeat: time.Nanosecond, LateAfter: 10 * time.Second, Logger: b.log(),
	})
}

func (b *bundle) exec(statement string, args ...any) int64 {
	b.t.Helper()
	tag, err := b.pool.Exec(b.ctx, statement, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	return tag.RowsAffected()
}

// value returns the one value a statement answers.
func value[T any](b *bundle, statement string, args ...any) T {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, statement, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// start inserts a run as an application does and returns it with its wake.
func (b *bundle) start() ownership.Want {
	b.t.Helper()
	id := value[runlog.RunID](b, `insert into pgexec.runs (kind, input) values ('k', '{"x": 1}') returning run_id`)
	return ownership.Want{RunID: id, WakeJob: value[int64](b, `select wake_job from pgexec.runs where run_id = $1`, id)}
}

func (b *bundle) startMany(n int) []ownership.Want {
	b.t.Helper()
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, $1::integer)`, n)
	rows, err := b.pool.Query(b.ctx, `select run_id, wake_job from pgexec.runs where status = 'queued' order by run_id`)
	if err != nil {
		b.t.Fatal(err)
	}
	wants, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ownership.Want])
	if err != nil {
		b.t.Fatal(err)
	}
	return wants
}

// claim wants one outcome for one run: "claimed", "busy" or "settled".
func (b *bundle) claim(c *ownership.Claimer, w ownership.Want, outcome string) ownership.Claimed {
	b.t.Helper()
	got, claimed := b.tryClaim(c, w)
	if got != outcome {
		b.t.Fatalf("claim: %s, want %s; the run is %s", got, outcome, b.run(w.RunID))
	}
	return claimed
}

func (b *bundle) tryClaim(c *ownership.Claimer, w ownership.Want) (string, ownership.Claimed) {
	b.t.Helper()
	res, err := c.Claim(b.ctx, []ownership.Want{w})
	switch {
	case err != nil:
		b.t.Fatal(err)
	case len(res.Claimed) == 1:
		return "claimed", res.Claimed[0]
	case len(res.Busy) == 1:
		return "busy", ownership.Claimed{}
	}
	return "settled", ownership.Claimed{}
}

// run describes a run's row in one line.
func (b *bundle) run(id runlog.RunID) string {
	b.t.Helper()
	return value[string](b, `select concat_ws(' ', status, 'owner', coalesce(owner::text, '-'), 'epoch', epoch,
		'wake', case when wake_job is null then '-' else 'yes' end, 'orphaned by', coalesce(orphaned_by::text, '-'))
		from pgexec.runs where run_id = $1`, id)
}

func (b *bundle) wantRun(id runlog.RunID, want string) {
	b.t.Helper()
	if got := b.run(id); got != want {
		b.t.Fatalf("run is %q, want %q", got, want)
	}
}

func (b *bundle) wantJob(id int64, state string) {
	b.t.Helper()
	if got := value[string](b, `select state::text from pgexec.river_job where id = $1`, id); got != state {
		b.t.Fatalf("job is %s, want %s", got, state)
	}
}

// backend returns the pid of a session's backend.
func (b *bundle) backend(s *ownership.Session) int32 {
	b.t.Helper()
	return value[int32](b, `select backend_pid from pgexec.replicas where replica_id = $1`, int32(s.ID()))
}

// terminate ends the session's backend as an administrator might.
func (b *bundle) terminate(s *ownership.Session) {
	b.t.Helper()
	if !value[bool](b, `select pg_terminate_backend($1, 5000)`, b.backend(s)) {
		b.t.Fatal("the session's backend does not end")
	}
}

func (b *bundle) waitLost(s *ownership.Session) {
	b.t.Helper()
	select {
	case <-s.Lost():
	case <-time.After(patience):
		b.t.Fatalf("session is not lost after %s", patience)
	}
}

// buryOne makes passes until one replica has been buried.
func (b *bundle) buryOne(f *ownership.Finder) ownership.Buried {
	b.t.Helper()
	var buried []ownership.Buried
	b.eventually("a dead replica is found", func() bool {
		var err error
		if buried, err = f.Pass(b.ctx); err != nil {
			b.t.Fatal(err)
		}
		return len(buried) > 0
	})
	if len(buried) != 1 {
		b.t.Fatalf("buried %d replicas, want 1", len(buried))
	}
	return buried[0]
}

// eventually waits for a state of the database that nothing announces.
func (b *bundle) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %s", what, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func running(s *ownership.Session, epoch int) string {
	return fmt.Sprintf("running owner %d epoch %d wake - orphaned by -", s.ID(), epoch)
}

// role makes a role that may do to pgexec's tables all it likes, but is no superuser.
func (b *bundle) role() string {
	b.t.Helper()
	name := "role_" + strings.ReplaceAll(value[string](b, `select gen_random_uuid()::text`), "-", "")
	for _, statement := range []string{
		"create role " + name, "grant all on schema pgexec to " + name,
		"grant all on all tables in schema pgexec to " + name, "grant all on all sequences in schema pgexec to " + name,
	} {
		b.exec(statement)
	}
	b.t.Cleanup(func() {
		for _, statement := range []string{"drop owned by " + name, "drop role " + name} {
			if _, err := b.pool.Exec(context.Background(), statement); err != nil {
				b.t.Error(err)
			}
		}
	})
	return name
}

// poolAs is a pool whose sessions act as that role.
func (b *bundle) poolAs(role string) *pgxpool.Pool {
	b.t.Helper()
	cfg, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = role
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}
