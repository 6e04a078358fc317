package runlog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; nothing here takes anywhere near as long.
const patience = time.Minute

// bundle is one test's database and what the tests do with it.
type bundle struct {
	testing.TB
	ctx  context.Context
	pool *pgxpool.Pool
}

func setup(t testing.TB) *bundle {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return &bundle{TB: t, ctx: ctx, pool: pgtest.DB(t)}
}

// writer starts a writer that is closed when the test ends.
func (b *bundle) writer(change func(*runlog.WriterConfig)) *runlog.Writer {
	b.Helper()
	cfg := runlog.WriterConfig{Pool: b.pool, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	w := runlog.NewWriter(cfg)
	b.Cleanup(w.Abort)
	return w
}

// gatedWriter is a writer with one flusher, which is held up by a flush that waits for another's lock until open
// is called: what is queued meanwhile leaves in one batch. All statements of appends are prepared by then.
func (b *bundle) gatedWriter(change func(*runlog.WriterConfig)) (w *runlog.Writer, open func()) {
	b.Helper()
	w = b.writer(func(cfg *runlog.WriterConfig) {
		cfg.Flushers = 1
		if change != nil {
			change(cfg)
		}
	})
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(b, "a", 1)).wantSeqs(2)
	b.appendAll(tail, node(b, "b", 1), node(b, "c", 1)).wantSeqs(3)
	tx := b.begin()
	b.claim(tx, id, 2)
	held := b.appendAll(tail, node(b, "late", 1))
	b.blockedOn(tx, 1)
	return w, func() {
		b.Helper()
		b.commit(tx)
		held.wantError(isFenced)
	}
}

// together has what is queued leave in one flush: the writer's only flusher is kept in a callback until all of it is there.
func (b *bundle) together(w *runlog.Writer, queue func()) {
	b.Helper()
	kept, free := make(chan struct{}), make(chan struct{})
	w.Open(runlog.RunID{}, 1, 1, 1).Append(node(b, "nobody's", 1), func(runlog.Seq, error) { close(kept); <-free })
	await(b, kept, "callback")
	queue()
	close(free)
}

// until waits for what happens in another goroutine and has no other sign.
func (b *bundle) until(happened func() bool) {
	b.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("did not happen within %v", patience)
		}
	}
}

func (b *bundle) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.ctx, sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](b *bundle, sql string, args ...any) T {
	b.Helper()
	var v T
	if err := b.pool.QueryRow(b.ctx, sql, args...).Scan(&v); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (b *bundle) newRun() runlog.RunID {
	b.Helper()
	return value[runlog.RunID](b, `insert into pgexec.runs (kind) values ('k') returning run_id`)
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// claim does to a run what a claim does: the row changes hands and the claim's record ends the log.
func (b *bundle) claim(db querier, id runlog.RunID, owner runlog.ReplicaID) (epoch runlog.Epoch, head runlog.Seq) {
	b.Helper()
	epoch, head, err := b.tryClaim(db, id, owner)
	if err != nil {
		b.Fatalf("claim run: %v", err)
	}
	return epoch, head
}

func (b *bundle) tryClaim(db querier, id runlog.RunID, owner runlog.ReplicaID) (epoch runlog.Epoch, head runlog.Seq, err error) {
	err = db.QueryRow(b.ctx, `update pgexec.runs set owner = $2, status = 'running', epoch = epoch + 1, wake_job = null
		where run_id = $1 returning epoch`, id, owner).Scan(&epoch)
	if err != nil {
		return 0, 0, err
	}
	err = db.QueryRow(b.ctx, `insert into pgexec.run_log (run_id, seq, record)
		select $1, 1 + coalesce(max(seq), 0), $2 from pgexec.run_log where run_id = $1 returning seq`,
		id, claimRecord(b, owner, epoch)).Scan(&head)
	return epoch, head, err
}

func claimRecord(t testing.TB, owner runlog.ReplicaID, epoch runlog.Epoch) []byte {
	return encode(t, &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: int32(owner), Epoch: int64(epoch)}}})
}

// open claims a run for the owner and returns the end of its log.
func (b *bundle) open(w *runlog.Writer, id runlog.RunID, owner runlog.ReplicaID) *runlog.Tail {
	b.Helper()
	epoch, head := b.claim(b.pool, id, owner)
	return w.Open(id, owner, epoch, head)
}

func encode(t testing.TB, rec *pb.Record) []byte {
	t.Helper()
	data, err := runlog.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// node is the record of a node's end.
func node(t testing.TB, id string, owner runlog.ReplicaID) []byte {
	t.Helper()
	return encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: id, Kind: "k", ReplicaId: int32(owner)}}})
}

// outcome is what an append's callback was told.
type outcome struct {
	seq runlog.Seq
	err error
}

// appending collects outcomes in the order in which they come.
type appending struct {
	b    *bundle
	mu   sync.Mutex
	got  []outcome
	want int
	all  chan struct{}
}

// appendAll queues all records at once.
func (b *bundle) appendAll(t *runlog.Tail, records ...[]byte) *appending {
	a := &appending{b: b, want: len(records), all: make(chan struct{})}
	for _, r := range records {
		t.Append(r, a.done)
	}
	return a
}

func (a *appending) done(seq runlog.Seq, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, outcome{seq, err})
	if len(a.got) == a.want {
		close(a.all)
	}
}

// wait returns the outcomes once all are there.
func (a *appending) wait() []outcome {
	a.b.Helper()
	await(a.b, a.all, "callbacks of appends")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got
}

// wantSeqs checks that all records were confirmed, in order, from first.
func (a *appending) wantSeqs(first runlog.Seq) {
	a.b.Helper()
	for i, o := range a.wait() {
		if o.err != nil || o.seq != first+runlog.Seq(i) {
			a.b.Errorf("append %d: seq %d, error %v, want seq %d", i, o.seq, o.err, first+runlog.Seq(i))
		}
	}
}

// wantError checks that all records were refused with an error for which is is true.
func (a *appending) wantError(is func(error) bool) {
	a.b.Helper()
	for i, o := range a.wait() {
		if o.err == nil || o.seq != 0 || !is(o.err) {
			a.b.Errorf("append %d: seq %d, error %v", i, o.seq, o.err)
		}
	}
}

func await[T any](b *bundle, ch <-chan T, what string) T {
	b.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		b.Fatalf("%s: nothing after %v", what, patience)
		panic("unreachable")
	}
}

// log returns a run's rows as they are.
func (b *bundle) log(id runlog.RunID) [][]byte {
	b.Helper()
	rows, err := b.pool.Query(b.ctx, `select seq, record from pgexec.run_log where run_id = $1 order by seq`, id)
	if err != nil {
		b.Fatal(err)
	}
	var records [][]byte
	var seq int64
	var record []byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &record}, func() error {
		records = append(records, record)
		if seq != int64(len(records)) {
			return fmt.Errorf("seq %d is at place %d", seq, len(records))
		}
		return nil
	})
	if err != nil {
		b.Fatalf("log of run %s is not a clean prefix: %v", id, err)
	}
	return records
}

// wantLog checks a run's whole log (G2).
func (b *bundle) wantLog(id runlog.RunID, want ...[]byte) {
	b.Helper()
	got := b.log(id)
	if len(got) != len(want) {
		b.Errorf("log of run %s has %s, want %s", id, describe(got), describe(want))
		return
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			b.Errorf("record %d of run %s is %s, want %s", i+1, id, describe(got[i:i+1]), describe(want[i:i+1]))
		}
	}
}

// describe says in a line what records are about.
func describe(records [][]byte) string {
	words := make([]string, len(records))
	for i, data := range records {
		var rec pb.Record
		switch err := proto.Unmarshal(data, &rec); {
		case err != nil:
			words[i] = fmt.Sprintf("%d bytes", len(data))
		case rec.GetNode() != nil:
			words[i] = "node " + rec.GetNode().GetId()
		case rec.GetClaim() != nil:
			words[i] = fmt.Sprintf("claim %d by %d", rec.GetClaim().GetEpoch(), rec.GetClaim().GetReplicaId())
		default:
			words[i] = fmt.Sprintf("%T", rec.GetBody())
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// blockedOn waits until a number of other backends of this database wait for a transaction's locks.
func (b *bundle) blockedOn(tx pgx.Tx, n int) (pids []int32) {
	b.Helper()
	return b.blockedBy(int32(tx.Conn().PgConn().PID()), n)
}

// blockedBy waits until a number of other backends of this database wait for the locks of one.
func (b *bundle) blockedBy(pid int32, n int) (pids []int32) {
	b.Helper()
	b.until(func() bool {
		pids = value[[]int32](b, `select coalesce(array_agg(pid), '{}') from pg_stat_activity
			where datname = current_database() and $1 = any (pg_blocking_pids(pid))`, pid)
		return len(pids) >= n
	})
	return pids
}

func (b *bundle) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) })
	return tx
}

func (b *bundle) commit(tx pgx.Tx) {
	b.Helper()
	if err := tx.Commit(b.ctx); err != nil {
		b.Fatal(err)
	}
}
