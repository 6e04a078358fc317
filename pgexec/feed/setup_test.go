package feed

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds the wait for anything that is to happen.
const limit = time.Minute

type bundle struct {
	t    *testing.T
	pool *pgxpool.Pool
	logs *counter
}

func setup(t *testing.T) *bundle {
	t.Parallel()
	return &bundle{t: t, pool: pgtest.DB(t), logs: &counter{Handler: slog.NewTextHandler(t.Output(), nil)}}
}

// counter counts warnings and what is below them.
type counter struct {
	slog.Handler
	warnings, infos atomic.Int32
}

func (c *counter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		c.warnings.Add(1)
	} else {
		c.infos.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	pgtest.Exec(b.t, b.pool, sql, args...)
}

func get[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	return pgtest.Value[T](b.t, b.pool, sql, args...)
}

func (b *bundle) newRun() runlog.RunID {
	b.t.Helper()
	return get[runlog.RunID](b, `select pgexec.uuid7()`)
}

// encode returns a node record, or the finished record.
func encode(t *testing.T, finished bool) []byte {
	t.Helper()
	rec := &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Kind: "k"}}}
	if finished {
		rec = &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: pb.RunStatus_RUN_STATUS_SUCCEEDED}}}
	}
	raw, err := runlog.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// append commits records first to last of a run in one statement and says so to the notifier, if any.
func (b *bundle) append(id runlog.RunID, first, last runlog.Seq, n *Notifier) {
	b.t.Helper()
	b.exec(`insert into pgexec.run_log select $1, i, $4 from generate_series($2::bigint, $3) i`, id, int64(first), int64(last), encode(b.t, false))
	if n != nil {
		n.Committed(id, last)
	}
}

// finish commits the finished record.
func (b *bundle) finish(id runlog.RunID, seq runlog.Seq, n *Notifier) {
	b.t.Helper()
	b.exec(`insert into pgexec.run_log values ($1, $2, $3)`, id, int64(seq), encode(b.t, true))
	if n != nil {
		n.Committed(id, seq)
	}
}

func (b *bundle) notifier() *Notifier {
	n := NewNotifier(b.pool, 5*time.Millisecond, slog.New(b.logs))
	n.Start()
	b.t.Cleanup(n.Stop)
	return n
}

func (b *bundle) connConfig() *pgx.ConnConfig {
	b.t.Helper()
	cfg, err := pgx.ParseConfig(pgtest.URL(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	return cfg
}

// listener is started and hears its own pings.
func (b *bundle) listener(change func(*Listener)) *Listener {
	b.t.Helper()
	l := NewListener(b.connConfig(), b.pool, slog.New(b.logs))
	if change != nil {
		change(l)
	}
	l.Start()
	b.t.Cleanup(l.Stop)
	if l.conn != nil {
		b.eventually("the listener hears", l.up.Load)
	}
	return l
}

func (b *bundle) eventually(what string, cond func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); !cond(); pgtest.Pause(b.t, 5*time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never came true: %s", what)
		}
	}
}

// next returns the next value, failing the test when none comes.
func next[T any](b *bundle, ch <-chan T) T {
	b.t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		b.t.Fatal("nothing came")
		panic("unreachable")
	}
}

// collect watches a run to its end in a goroutine and checks that each record
// comes once and in order.
func (b *bundle) collect(watchers *sync.WaitGroup, l *Listener, id runlog.RunID, after, last runlog.Seq) {
	watchers.Go(func() {
		want := after + 1
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*limit)
		defer cancel()
		for e, err := range l.Watch(ctx, id, after) {
			if err != nil {
				b.t.Errorf("watch after %d stopped before %d: %v", after, want, err)
				return
			}
			if e.Seq != want || e.Record == nil || len(e.Raw) == 0 {
				b.t.Errorf("watch after %d got %d, want %d", after, e.Seq, want)
				return
			}
			want++
		}
		if want != last+1 {
			b.t.Errorf("watch after %d ended before %d, want the end at %d", after, want, last)
		}
	})
}

// breaker lets a test break the connections a pool or a listener dials.
type breaker struct {
	refuse atomic.Bool
	mu     sync.Mutex
	conns  []*brokenConn
}

func (k *breaker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if k.refuse.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &brokenConn{Conn: conn}
	k.mu.Lock()
	k.conns = append(k.conns, c)
	k.mu.Unlock()
	return c, nil
}

// freeze makes what the server sends on the present connections disappear.
func (k *breaker) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		c.frozen.Store(true)
	}
}

// cut closes the present connections.
func (k *breaker) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
}

type brokenConn struct {
	net.Conn
	frozen atomic.Bool
}

func (c *brokenConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.frozen.Load() {
			return n, err
		}
	}
}

// hang dials for ever.
func (k *breaker) hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
