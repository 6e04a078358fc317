package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// C08, G5: watchers that start while records are committed get each record
// once and in order, up to the end.
func TestWatch_StartupWindow(t *testing.T) {
	b := setup(t)
	n, l := b.notifier(), b.listener(func(l *Listener) { l.timing.pollUp = time.Hour })
	const last = 1200
	runs := []runlog.RunID{b.newRun(), b.newRun(), b.newRun()}
	var writers, watchers sync.WaitGroup
	var head [3]atomic.Int64
	for i, id := range runs {
		writers.Go(func() {
			for seq := runlog.Seq(1); seq < last; {
				to := min(seq+runlog.Seq(rand.N(20)), last-1)
				b.append(id, seq, to, n)
				head[i].Store(int64(to))
				seq = to + 1
			}
			b.finish(id, last, n)
		})
	}
	for range 60 {
		i := rand.N(len(runs))
		after := runlog.Seq(rand.N(head[i].Load() + 1))
		b.collect(&watchers, l, runs[i], after, last)
		pgtest.Pause(t, rand.N(10*time.Millisecond))
	}
	writers.Wait()
	for i := range runs {
		b.collect(&watchers, l, runs[i], 0, last)
		b.collect(&watchers, l, runs[i], last-1, last)
		b.collect(&watchers, l, runs[i], last, last) // nothing is to come
	}
	watchers.Wait()
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if len(l.hub.runs) != 0 || len(l.hub.dirty) != 0 {
		t.Errorf("%d runs are still watched, %d dirty", len(l.hub.runs), len(l.hub.dirty))
	}
}

// A record reaches an idle watcher at once, not when it polls.
func TestWatch_Latency(t *testing.T) {
	b := setup(t)
	const poll = 20 * time.Second
	n, l := b.notifier(), b.listener(func(l *Listener) { l.timing.pollUp, l.timing.pollDown = poll, poll })
	id := b.newRun()
	got := make(chan Entry)
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for e, err := range l.Watch(ctx, id, 0) {
			if err != nil {
				return
			}
			got <- e
		}
	})
	var late []time.Duration
	for seq := runlog.Seq(1); seq <= 30; seq++ {
		b.append(id, seq, seq, nil)
		began := time.Now()
		n.Committed(id, seq)
		if e := next(b, got); e.Seq != seq {
			t.Fatalf("got %d, want %d", e.Seq, seq)
		}
		late = append(late, time.Since(began))
		pgtest.Pause(t, 30*time.Millisecond)
	}
	cancel()
	watcher.Wait()
	slices.Sort(late)
	t.Logf("commit to watcher: p50 %v, p95 %v, max %v", late[15], late[28], late[29])
	if late[15] > poll/2 {
		t.Errorf("half of them took longer than %v: the poll would do as well", late[15])
	}
}

// queries counts the reads of a pool.
type queries struct{ reads atomic.Int64 }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL == sql.FeedRead {
		q.reads.Add(1)
	}
	return ctx
}

func (*queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// G8: watchers of one run share one read, and all runs share one statement.
func TestWatch_SharedReads(t *testing.T) {
	b := setup(t)
	var count queries
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = &count
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n, l := b.notifier(), b.listener(func(l *Listener) { l.pool = pool })
	const runs, perRun, last = 20, 10, 100
	ids := make([]runlog.RunID, runs)
	var watchers sync.WaitGroup
	for i := range ids {
		ids[i] = b.newRun()
		for range perRun {
			b.collect(&watchers, l, ids[i], 0, last)
		}
	}
	b.eventually("everybody has read to the end", func() bool {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		live := 0
		for _, w := range l.hub.runs {
			if w.live && w.refs == perRun {
				live++
			}
		}
		return live == runs && count.reads.Load() >= runs*perRun
	})
	before, began := count.reads.Load(), time.Now()
	for seq := runlog.Seq(1); seq < last; seq++ {
		for _, id := range ids {
			b.append(id, seq, seq, n)
		}
	}
	for _, id := range ids {
		b.finish(id, last, n)
	}
	watchers.Wait()
	reads, took := count.reads.Load()-before, time.Since(began)
	t.Logf("%d reads in %v for %d watchers of %d records each", reads, took, runs*perRun, last)
	if most := int64(took/l.timing.read) + 5; reads > most {
		t.Errorf("more than %d reads", most)
	}
}

// A watcher that is slow holds no connection, falls out of what is kept in
// memory, and gets everything all the same.
func TestWatch_SlowWatcher(t *testing.T) {
	b := setup(t)
	n, l := b.notifier(), b.listener(nil)
	id := b.newRun()
	const last = 3 * keepEntries
	b.append(id, 1, 1, n)
	want := runlog.Seq(1)
	for e, err := range l.Watch(t.Context(), id, 0) {
		if err != nil || e.Seq != want {
			t.Fatalf("got %d, %v; want %d", e.Seq, err, want)
		}
		if want++; e.Seq == 1 {
			var fast sync.WaitGroup
			b.collect(&fast, l, id, 0, last)
			b.append(id, 2, last-1, n)
			b.finish(id, last, n)
			fast.Wait()
			if held := b.pool.Stat().AcquiredConns(); held > 1 {
				t.Errorf("%d connections are held", held)
			}
		}
	}
	if want != last+1 {
		t.Errorf("ended at %d", want-1)
	}
}

func TestWatch_EndsWithAnError(t *testing.T) {
	b := setup(t)
	l := b.listener(nil)
	watch := func(ctx context.Context, id runlog.RunID, after runlog.Seq) (n int, err error) {
		for _, err = range l.Watch(ctx, id, after) {
			n++
		}
		return n, err
	}
	t.Run("context", func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		if _, err := watch(ctx, b.newRun(), 0); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("gap", func(t *testing.T) {
		id := b.newRun()
		b.append(id, 1, 3, nil)
		b.append(id, 5, 5, nil)
		n, err := watch(t.Context(), id, 0)
		var gap *runlog.GapError
		if !errors.As(err, &gap) || gap.Want != 4 || n != 4 {
			t.Errorf("got %d, %v", n, err)
		}
	})
	t.Run("gap that comes later", func(t *testing.T) {
		id := b.newRun()
		b.append(id, 1, 1, nil)
		for e, err := range l.Watch(t.Context(), id, 0) {
			if e.Seq == 1 {
				b.append(id, 3, 3, nil)
				continue
			}
			var gap *runlog.GapError
			if !errors.As(err, &gap) || gap.Want != 2 {
				t.Errorf("got %d, %v", e.Seq, err)
			}
		}
	})
	t.Run("bad record", func(t *testing.T) {
		id := b.newRun()
		b.exec(`insert into pgexec.run_log values ($1, 1, '\xff')`, id)
		var bad *runlog.DecodeError
		if _, err := watch(t.Context(), id, 0); !errors.As(err, &bad) || bad.Seq != 1 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("stop", func(t *testing.T) {
		l := NewListener(nil, b.pool, nil)
		l.Start()
		time.AfterFunc(50*time.Millisecond, l.Stop)
		for _, err := range l.Watch(t.Context(), b.newRun(), 0) {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("got %v", err)
			}
		}
		l.Stop()
	})
}

// A subscription ticks when the log grows, and from time to time without.
func TestSubscribe_Ticks(t *testing.T) {
	b := setup(t)
	n, l := b.notifier(), b.listener(func(l *Listener) { l.timing.pollUp = time.Hour })
	id := b.newRun()
	tick, cancel := l.Subscribe(id)
	n.Committed(id, 1)
	next(b, tick)
	n.Committed(id, 2)
	next(b, tick)
	cancel()
	cancel()
	n.Committed(id, 3)

	l = b.listener(func(l *Listener) { l.timing.pollUp = 300 * time.Millisecond })
	tick, cancel = l.Subscribe(id)
	defer cancel()
	for range 3 {
		next(b, tick)
	}
}

// However large the records are, one read of many runs returns a bounded part, of each run at least one record, and says of which there is more.
func TestRead_IsBounded(t *testing.T) {
	b := setup(t)
	const runs, size = 20, 700_000
	batches := make(map[runlog.RunID]*batch)
	record := encode(t, false)
	var ids []runlog.RunID
	for range runs {
		id := b.newRun()
		ids = append(ids, id)
		b.exec(`insert into pgexec.run_log select $1, i, case i when 3 then $2::bytea else $3 end from generate_series(1, 3) i`, id, record, largeRecord(t, size))
		batches[id] = &batch{}
	}
	l := b.listener(nil)
	for _, want := range []struct {
		entries int
		full    bool
	}{{2, true}, {1, false}, {0, false}} {
		if err := l.read(t.Context(), batches); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			got := batches[id]
			if len(got.entries) != want.entries || got.full != want.full || got.err != nil {
				t.Fatalf("after %d: %d records, full %v, error %v; want %+v", got.after, len(got.entries), got.full, got.err, want)
			}
			batches[id] = &batch{after: got.after + runlog.Seq(len(got.entries))}
		}
	}

	id := b.newRun()
	const last = 30
	b.exec(`insert into pgexec.run_log select $1, i, $2 from generate_series(1, $3) i`, id, largeRecord(t, size), last-1)
	b.finish(id, last, nil)
	var seen runlog.Seq
	for e, err := range l.Watch(t.Context(), id, 0) {
		if seen++; err != nil || e.Seq != seen {
			t.Fatalf("got %d, %v; want %d", e.Seq, err, seen)
		}
	}
	if seen != last {
		t.Errorf("ended at %d", seen)
	}
}

func largeRecord(t *testing.T, size int) []byte {
	t.Helper()
	raw, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: "n", Kind: "k", Output: &pb.Payload{Value: &pb.Payload_Json{Json: make([]byte, size)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Reading for watchers uses the primary key.
func TestPlans_NoSequentialScan(t *testing.T) {
	b := setup(t)
	var ids []string
	var after []int64
	for range 50 {
		id := b.newRun()
		b.append(id, 1, 100, nil)
		ids, after = append(ids, id.String()), append(after, 50)
	}
	b.exec(`analyze pgexec.run_log`)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		// Partitions that are empty yet are cheapest to scan.
		if _, err := tx.Exec(t.Context(), `set local enable_seqscan = off`); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), `explain (costs off) `+sql.FeedRead, ids, after, entriesPerRead, readBytes)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") {
			return fmt.Errorf("sequential scan:\n%s", plan)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
