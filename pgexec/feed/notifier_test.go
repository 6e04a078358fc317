package feed

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// subscriber is a plain client of the channel, as any application may be.
func (b *bundle) subscriber() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.t.Context(), b.connConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(b.t.Context(), `listen pgexec_log`); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// heads reads notifications until done says so, and returns their number and
// the highest head of each run.
func (b *bundle) heads(conn *pgx.Conn, done func(map[runlog.RunID]runlog.Seq) bool) (int, map[runlog.RunID]runlog.Seq) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	heads, n := make(map[runlog.RunID]runlog.Seq), 0
	for !done(heads) {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			b.t.Fatalf("after %d notifications: %v", n, err)
		}
		n++
		if len(got.Payload) >= 8000 {
			b.t.Errorf("a payload of %d bytes", len(got.Payload))
		}
		err = parseHints(got.Payload, func(id runlog.RunID, head runlog.Seq) { heads[id] = max(heads[id], head) })
		if err != nil {
			b.t.Errorf("payload %q: %v", got.Payload, err)
		}
	}
	return n, heads
}

// C24: many runs make many notifications, each below the limit; C23: many
// commits of a run make few.
func TestNotifier_CoalescesAndSplits(t *testing.T) {
	b := setup(t)
	conn := b.subscriber()
	n := b.notifier()
	const runs = 10_000
	ids := make([]runlog.RunID, runs)
	for i := range ids {
		ids[i] = runlog.RunID{byte(i >> 8), byte(i), 15: 1}
	}
	for head := runlog.Seq(1); head <= 3; head++ {
		for _, id := range ids {
			n.Committed(id, head)
		}
	}
	count, _ := b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool {
		full := 0
		for _, head := range heads {
			if head == 3 {
				full++
			}
		}
		return full == runs
	})
	t.Logf("%d notifications for 10,000 runs", count)

	const commits = 200_000
	began := time.Now()
	for head := runlog.Seq(4); head <= commits; head++ {
		n.Committed(ids[0], head)
	}
	took := time.Since(began)
	count, _ = b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[ids[0]] == commits })
	most := int(time.Since(began)/(5*time.Millisecond)) + 2
	t.Logf("%d notifications for %d commits noted within %v", count, commits, took)
	if count > most {
		t.Errorf("more than one each 5 ms, at most %d", most)
	}
}

// C28: while nothing can be notified, nobody waits, what is pending is bounded
// and sent afterwards; an outage is one line in the log.
func TestNotifier_FailureBlocksNobody(t *testing.T) {
	b := setup(t)
	conn := b.subscriber()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	var broken breaker
	cfg.ConnConfig.DialFunc = broken.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n := NewNotifier(pool, 5*time.Millisecond, slog.New(b.logs))
	n.Start()
	t.Cleanup(n.Stop)
	id := b.newRun()
	n.Committed(id, 1)
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[id] == 1 })

	outage := func(number int32) {
		broken.refuse.Store(true)
		broken.cut()
		n.Committed(id, runlog.Seq(number)+1)
		b.eventually("the outage is noticed", func() bool { return b.logs.warnings.Load() == number })
	}
	outage(1)
	broken.refuse.Store(false)
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[id] == 2 })
	// A subscriber hears of it before the notifier does.
	b.eventually("the end of the outage is noticed", func() bool { return b.logs.infos.Load() == 1 })

	outage(2)
	for i := range 2 * maxPending { // does not end if it waits for the database
		n.Committed(runlog.RunID{byte(i >> 16), byte(i >> 8), byte(i), 15: 1}, 1)
	}
	n.mu.Lock()
	pending := len(n.heads)
	n.mu.Unlock()
	if pending > maxPending {
		t.Errorf("%d runs are kept", pending)
	}
	pgtest.Pause(t, 500*time.Millisecond) // for several attempts, none of which is to be logged
	broken.refuse.Store(false)
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return len(heads) > 0 })
	n.Committed(id, 4)
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[id] == 4 })
	if got := b.logs.warnings.Load(); got != 2 {
		t.Errorf("%d warnings for two outages", got)
	}
}

// Stop sends what is pending, and does not wait for a database that is gone.
func TestNotifier_StopSendsTheRest(t *testing.T) {
	b := setup(t)
	conn := b.subscriber()
	n := NewNotifier(b.pool, time.Hour, slog.New(b.logs))
	n.stopTimeout = limit
	n.Start()
	id := b.newRun()
	n.Committed(id, 1)
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[id] == 1 })
	n.Committed(id, 2)
	n.Stop()
	b.heads(conn, func(heads map[runlog.RunID]runlog.Seq) bool { return heads[id] == 2 })

	cfg, err := pgxpool.ParseConfig(`host=192.0.2.1 connect_timeout=60`)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = (&breaker{}).hang
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	n = NewNotifier(pool, time.Millisecond, slog.New(b.logs))
	n.stopTimeout = 10 * time.Millisecond
	n.Start()
	n.Committed(id, 3)
	began := time.Now()
	n.Stop()
	if took := time.Since(began); took >= notifyTimeout {
		t.Errorf("took %v", took)
	}
}

func TestHints_Parse(t *testing.T) {
	id := runlog.RunID{1, 2, 3}
	for _, bad := range []string{"x", id.String(), id.String() + ":", id.String() + ":x", strings.Repeat("z", 36) + ":1", id.String() + ";1"} {
		if err := parseHints(bad, func(runlog.RunID, runlog.Seq) { t.Errorf("%q gave a hint", bad) }); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	heads := map[runlog.RunID]runlog.Seq{id: 1 << 62, {9}: 7}
	for _, payload := range payloads(heads) {
		if err := parseHints(payload, func(id runlog.RunID, head runlog.Seq) {
			if heads[id] != head {
				t.Errorf("%s: %d, want %d", id, head, heads[id])
			}
			delete(heads, id)
		}); err != nil {
			t.Error(err)
		}
	}
	if len(heads) != 0 {
		t.Errorf("left out: %v", heads)
	}
}
