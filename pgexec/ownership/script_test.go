package ownership_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// G1, G2, G3: interleavings of claims, appends, deaths and failovers, step by
// step on a real server. After each script every log is a clean prefix. What
// the commands mean is said in testdata/README.md.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runScript(t, file)
		})
	}
}

// stage is where a script plays.
type stage struct {
	*bundle
	finder   *ownership.Finder
	replicas map[string]*actor
	runs     map[string]ownership.Want
	names    map[runlog.ReplicaID]string
	buried   map[string]int // runs put back
	gate     *pgx.Conn      // holds appends back
	copies   int            // of the tables, made so far
	versions []int          // the copies that a failover can go back to
}

// actor is one replica and what it has in memory.
type actor struct {
	session *ownership.Session
	claimer *ownership.Claimer
	writer  *runlog.Writer
	line    *line
	hot     map[string]*hotRun
	claims  chan claimAnswer // in flight
}

type claimAnswer struct {
	name string // whose
	res  ownership.ClaimResult
	err  error
}

// hotRun is a run in an actor's memory, which may be stale.
type hotRun struct {
	tail    *runlog.Tail
	done    int              // nodes
	results chan error       // of appends in flight
	flying  int              // how many
	id      runlog.ReplicaID // whose
}

func runScript(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newStage(setup(t))
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		line, _, _ := strings.Cut(scan.Text(), "#")
		command, want, checked := strings.Cut(strings.TrimSpace(line), "->")
		if command == "" {
			continue
		}
		got := s.do(strings.Fields(command))
		if checked && got != strings.TrimSpace(want) {
			t.Fatalf("%s:%d: %s: %q, want %q", file, n, strings.TrimSpace(command), got, strings.TrimSpace(want))
		}
		if t.Failed() {
			t.Fatalf("%s:%d: %s", file, n, strings.TrimSpace(command))
		}
	}
	for _, w := range s.runs {
		s.checkLog(w.RunID)
	}
	for name, a := range s.replicas {
		if a.line.loseAnswer.Load() {
			t.Errorf("%s: %s was to lose an answer and did not", file, name)
		}
	}
}

func newStage(b *bundle) *stage {
	s := &stage{
		bundle: b, finder: b.finder(),
		replicas: make(map[string]*actor), runs: make(map[string]ownership.Want), names: make(map[runlog.ReplicaID]string),
		buried: make(map[string]int),
	}
	gate, err := pgx.ConnectConfig(b.ctx, b.connConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	s.gate = gate
	b.t.Cleanup(func() { _ = gate.Close(context.Background()) })
	// The gate stands between the look at the run and the write to its log, of an append and of a claim.
	b.exec(`create function public.gate() returns trigger language plpgsql as $$
		begin
			perform pg_advisory_xact_lock_shared(hashtext(split_part(current_setting('application_name'), ':', 1)));
			return new;
		end $$`)
	b.exec(`create trigger gate before insert on pgexec.run_log for each row execute function public.gate()`)
	return s
}

func (s *stage) do(words []string) string {
	s.t.Helper()
	name, args := words[0], words[1:]
	command, ok := map[string]func(args []string) string{
		"start": s.doStart, "begin-claim": s.doBeginClaim, "await-claim": s.doAwaitClaim, "pass": s.doPass, "claim": s.doClaim, "race": s.doRace, "append": s.doAppend, "begin": s.doBegin, "await": s.doAwait,
		"hold": s.doHold, "let-go": s.doLetGo, "lose-answer": s.doLoseAnswer,
		"release": s.doRelease, "close": s.doClose, "kill": s.doKill, "terminate-session": s.doTerminate, "lost": s.doLost,
		"freeze": s.doFreeze, "thaw": s.doThaw, "late": s.doLate, "bury": s.doBury, "failover": s.doFailover,
		"log": s.doLog, "run": s.doRun,
	}[name]
	if !ok {
		s.t.Fatalf("unknown command %q", name)
	}
	switch name {
	case "claim", "race", "append", "await", "release", "close", "bury":
		s.keepVersion()
	}
	return command(args)
}

func (s *stage) actor(name string) *actor {
	s.t.Helper()
	if a, ok := s.replicas[name]; ok {
		return a
	}
	a := &actor{line: &line{}, hot: make(map[string]*hotRun), claims: make(chan claimAnswer, 1)}
	cfg, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	a.line.through(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(s.ctx, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	a.session = s.open(func(cfg *ownership.SessionConfig) {
		cfg.Heartbeat = 50 * time.Millisecond
		a.line.through(cfg.ConnConfig)
	})
	s.t.Cleanup(func() { a.line.frozen.open() })
	a.claimer = ownership.NewClaimer(ownership.ClaimerConfig{Pool: pool, ReplicaID: a.session.ID(), Info: s.info(), Logger: s.log()})
	a.writer = runlog.NewWriter(runlog.WriterConfig{Pool: pool, Logger: s.log(), Flushers: 1})
	s.t.Cleanup(a.writer.Abort)
	s.replicas[name] = a
	s.names[a.session.ID()] = name
	return a
}

func (s *stage) want(name string) ownership.Want {
	s.t.Helper()
	if _, ok := s.runs[name]; !ok {
		s.runs[name] = s.start()
	}
	return s.wakeOf(s.runs[name].RunID)
}

func (s *stage) doStart(args []string) string {
	s.want(args[0])
	return ""
}

func (s *stage) doClaim(args []string) string {
	s.launchClaim(args[0], args[1])
	return s.doAwaitClaim(args)
}

// doBeginClaim starts a claim of a replica that is held and returns when it stands at the gate.
func (s *stage) doBeginClaim(args []string) string {
	s.launchClaim(args[0], args[1])
	s.atGate(args[0])
	return ""
}

func (s *stage) launchClaim(name, run string) {
	s.t.Helper()
	a, w := s.actor(name), s.want(run)
	go func() {
		res, err := a.claimer.Claim(s.ctx, []ownership.Want{w})
		a.claims <- claimAnswer{name, res, err}
	}()
}

func (s *stage) doAwaitClaim(args []string) string {
	a := s.actor(args[0])
	got := <-a.claims
	switch {
	case errors.Is(got.err, ownership.ErrSessionLost):
		return "lost"
	case got.err != nil:
		s.t.Fatal(got.err)
	case len(got.res.Busy) == 1:
		return "busy"
	case len(got.res.Claimed) == 0:
		return "settled"
	}
	s.rehydrate(a, args[1], got.res.Claimed[0])
	return "claimed"
}

func (s *stage) rehydrate(a *actor, run string, c ownership.Claimed) {
	s.t.Helper()
	h := &hotRun{tail: a.writer.Open(c.RunID, a.session.ID(), c.Epoch, c.Head), results: make(chan error, 100), id: a.session.ID()}
	err := runlog.Read(s.ctx, s.pool, c.RunID, 0, func(_ runlog.Seq, rec *pb.Record) error {
		if rec.GetNode() != nil {
			h.done++
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	a.hot[run] = h
}

// doRace lets two replicas claim at the same time. Who got the run is also known as "winner".
func (s *stage) doRace(args []string) string {
	for _, name := range args[:2] {
		s.actor(name)
	}
	for _, name := range args[:2] {
		s.launchClaim(name, args[2])
	}
	claimed := 0
	for _, name := range args[:2] {
		if s.doAwaitClaim([]string{name, args[2]}) == "claimed" {
			claimed++
			s.replicas["winner"] = s.actor(name)
		}
	}
	return fmt.Sprintf("%d claimed", claimed)
}

func (s *stage) doAppend(args []string) string {
	s.launch(args)
	return s.doAwait(args)
}

// doBegin starts appends of a replica that is held and returns when one of them stands at the gate.
func (s *stage) doBegin(args []string) string {
	s.launch(args)
	s.atGate(args[0])
	return ""
}

func (s *stage) atGate(name string) {
	s.t.Helper()
	s.eventually(name+" stands at the gate", func() bool {
		return value[int](s.bundle, `select count(*) from pg_stat_activity
			where datname = current_database() and split_part(application_name, ':', 1) = $1 and wait_event = 'advisory'`, name) > 0
	})
}

// launch starts appends of the next nodes, as the replica's memory has it.
func (s *stage) launch(args []string) {
	h := s.actor(args[0]).hot[args[1]]
	n := 1
	if len(args) == 3 {
		n, _ = strconv.Atoi(strings.TrimPrefix(args[2], "x"))
	}
	if n > 1 {
		defer s.keepFlusher(s.actor(args[0]))()
	}
	for range n {
		h.done++
		h.flying++
		h.tail.Append(s.nodeRecord(h.id, fmt.Sprintf("n%d", h.done)), func(_ runlog.Seq, err error) { h.results <- err })
	}
}

// keepFlusher keeps a replica's only flusher in a callback, so that what is appended until it is let go leaves in one flush.
func (s *stage) keepFlusher(a *actor) (letGo func()) {
	kept, free := make(chan struct{}), make(chan struct{})
	a.writer.Open(runlog.RunID{}, a.session.ID(), 1, 1).Append(s.nodeRecord(a.session.ID(), "nobody's"), func(runlog.Seq, error) { close(kept); <-free })
	<-kept
	return func() { close(free) }
}

func (s *stage) doAwait(args []string) string {
	h := s.actor(args[0]).hot[args[1]]
	outcomes := make(map[string]bool)
	for ; h.flying > 0; h.flying-- {
		switch err := <-h.results; {
		case err == nil:
			outcomes["ok"] = true
		case errors.Is(err, runlog.ErrFenced):
			outcomes["fenced"] = true
		default:
			s.t.Fatal(err)
		}
	}
	if len(outcomes) != 1 {
		return fmt.Sprint(outcomes)
	}
	for outcome := range outcomes {
		return outcome
	}
	return ""
}

// doHold stops a replica's appends and claims before they write to the log.
func (s *stage) doHold(args []string) string {
	if _, err := s.gate.Exec(s.ctx, `select pg_advisory_lock(hashtext($1))`, args[0]); err != nil {
		s.t.Fatal(err)
	}
	return ""
}

func (s *stage) doLetGo(args []string) string {
	if _, err := s.gate.Exec(s.ctx, `select pg_advisory_unlock(hashtext($1))`, args[0]); err != nil {
		s.t.Fatal(err)
	}
	return ""
}

// doLoseAnswer cuts the replica's connection after the commit of its next write to the log.
func (s *stage) doLoseAnswer(args []string) string {
	s.actor(args[0]).line.loseAnswer.Store(true)
	return ""
}

func (s *stage) doRelease(args []string) string {
	a := s.actor(args[0])
	held, err := ownership.Owned(s.ctx, s.pool, a.session.ID())
	if err == nil {
		_, err = ownership.Release(s.ctx, s.pool, a.session.ID(), held, nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%d runs", len(held))
}

func (s *stage) doClose(args []string) string {
	if err := s.actor(args[0]).session.Close(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	return ""
}

// doKill ends all connections of a replica as a dying process does.
func (s *stage) doKill(args []string) string {
	a := s.actor(args[0])
	pid := s.backend(a.session)
	a.line.cut()
	s.eventually("the backend has ended", func() bool {
		return value[int](s.bundle, `select count(*) from pg_stat_activity where pid = $1`, pid) == 0
	})
	return s.doLost(args)
}

func (s *stage) doTerminate(args []string) string {
	s.terminate(s.actor(args[0]).session)
	return ""
}

func (s *stage) doLost(args []string) string {
	s.waitLost(s.actor(args[0]).session)
	return ""
}

// doFreeze stops what a replica sends and reads on its session, as SIGSTOP does.
func (s *stage) doFreeze(args []string) string {
	s.actor(args[0]).line.frozen.shut()
	return ""
}

func (s *stage) doThaw(args []string) string {
	s.actor(args[0]).line.frozen.open()
	return s.doLost(args)
}

// doLate lets a frozen replica's heartbeat grow old.
func (s *stage) doLate(args []string) string {
	s.exec(`update pgexec.replicas set heartbeat_at = heartbeat_at - interval '1 minute' where replica_id = $1`, int32(s.actor(args[0]).session.ID()))
	return ""
}

// doPass makes one pass over the listed replicas.
func (s *stage) doPass([]string) string {
	found, err := s.finder.Pass(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%d buried", len(found))
}

// doBury makes passes until the replica is buried. Others that it finds dead are buried as well.
func (s *stage) doBury(args []string) string {
	s.eventually(args[0]+" is found dead", func() bool {
		found, err := s.finder.Pass(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, b := range found {
			s.buried[s.names[b.ReplicaID]] = len(b.Runs)
		}
		_, ok := s.buried[args[0]]
		return ok
	})
	return fmt.Sprintf("%d runs", s.buried[args[0]])
}

func (s *stage) doLog(args []string) string {
	var words []string
	err := runlog.Read(s.ctx, s.pool, s.runs[args[0]].RunID, 0, func(_ runlog.Seq, rec *pb.Record) error {
		switch {
		case rec.GetClaim() != nil:
			words = append(words, "claim:"+s.names[runlog.ReplicaID(rec.GetClaim().GetReplicaId())])
		case rec.GetNode() != nil:
			words = append(words, rec.GetNode().GetId()+":"+s.names[runlog.ReplicaID(rec.GetNode().GetReplicaId())])
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(words, " ")
}

func (s *stage) doRun(args []string) string {
	id := s.runs[args[0]].RunID
	owner := value[int32](s.bundle, `select coalesce(owner, 0) from pgexec.runs where run_id = $1`, id)
	status := value[string](s.bundle, `select status from pgexec.runs where run_id = $1`, id)
	if owner == 0 {
		return status
	}
	return status + " " + s.names[runlog.ReplicaID(owner)]
}

// keepVersion notes the state of the tables, for failovers.
func (s *stage) keepVersion() {
	s.t.Helper()
	s.copies++
	s.versions = append(s.versions, s.copies)
	for _, table := range []string{"runs", "run_log", "replicas", "river_job"} {
		s.exec(fmt.Sprintf(`create table public.%s_%d as table pgexec.%s`, table, s.copies, table))
	}
}

// doFailover takes back what the last n commands wrote, as the promotion of a
// standby does that had not received it, and ends all connections.
func (s *stage) doFailover(args []string) string {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		s.t.Fatal(err)
	}
	version := s.versions[len(s.versions)-n]
	s.versions = s.versions[:len(s.versions)-n]
	err = pgx.BeginFunc(s.ctx, s.gate, func(tx pgx.Tx) error {
		statements := []string{`set local session_replication_role = replica`}
		for _, table := range []string{"runs", "run_log", "replicas", "river_job"} {
			statements = append(statements, `delete from pgexec.`+table,
				fmt.Sprintf(`insert into pgexec.%s table public.%s_%d`, table, table, version))
		}
		for _, statement := range statements {
			if _, err := tx.Exec(s.ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err == nil {
		_, err = s.gate.Exec(s.ctx, `select pg_terminate_backend(pid, 5000) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid()`)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the server answers", func() bool { return s.pool.Ping(s.ctx) == nil })
	return ""
}
