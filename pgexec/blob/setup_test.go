package blob

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is one test's database with a store.
type bundle struct {
	testing.TB
	ctx   context.Context
	pool  *pgxpool.Pool
	store *Store
}

func setup(t *testing.T, cfg Config) *bundle {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &bundle{TB: t, ctx: ctx, pool: pgtest.DB(t)}
	b.store = b.open(cfg)
	return b
}

// open opens a store of its own on the bundle's database, as another replica does.
func (b *bundle) open(cfg Config) *Store {
	s := New(b.pool, cfg)
	b.Cleanup(s.Close)
	return s
}

// each runs a test on every kind of store that needs no server of its own.
func each(t *testing.T, test func(*testing.T, Config)) {
	t.Run("db", func(t *testing.T) { test(t, Config{}) })
	t.Run("file", func(t *testing.T) { test(t, Config{Write: "file://" + t.TempDir()}) })
}

// run inserts a run that nothing executes.
func (b *bundle) run() (id [16]byte) {
	b.Helper()
	if err := b.pool.QueryRow(b.ctx, `insert into pgexec.runs (kind) values ('test') returning run_id`).Scan(&id); err != nil {
		b.Fatal(err)
	}
	return id
}

// end ends a run whose log has the given record.
func (b *bundle) end(run [16]byte, record []byte) {
	b.Helper()
	b.exec(`insert into pgexec.run_log (run_id, seq, record) values ($1, 1, $2)`, run, record)
	b.exec(`update pgexec.runs set status = 'succeeded' where run_id = $1`, run)
}

func (b *bundle) exec(statement string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.ctx, statement, args...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

func (b *bundle) count(statement string, args ...any) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.ctx, statement, args...).Scan(&n); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
	return n
}

func (b *bundle) put(run [16]byte, data []byte) *pb.Blob {
	b.Helper()
	ref, err := b.store.Put(b.ctx, run, "text/plain", data)
	if err != nil {
		b.Fatal(err)
	}
	return ref
}

// reads checks that a store which has nothing in memory reads these bytes.
func (b *bundle) reads(cfg Config, ref *pb.Blob, want []byte) {
	b.Helper()
	got, err := b.open(cfg).Get(b.ctx, ref)
	if err != nil {
		b.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		b.Fatalf("read %d bytes of %s that are not the %d stored", len(got), ref.Url, len(want))
	}
}

// faulty checks that reading fails for good, with that code, and names the blob.
func (b *bundle) faulty(cfg Config, ref *pb.Blob, code string) {
	b.Helper()
	_, err := b.open(cfg).Get(b.ctx, ref)
	var f *Fault
	if !errors.As(err, &f) || f.Code != code || f.URL != ref.Url {
		b.Fatalf("reading %s: %v, want %s", ref.Url, err, code)
	}
}

// collect makes a whole pass: one that was cancelled a moment ago may still be at work in the server.
func (b *bundle) collect() (sum Collected) {
	b.Helper()
	for {
		done, err := b.store.Collect(b.ctx, 0)
		sum = Collected{sum.Refs + done.Refs, sum.Blobs + done.Blobs, sum.Bytes + done.Bytes}
		if err == nil {
			return sum
		}
		if !errors.Is(err, ErrOtherCollector) {
			b.Fatal(err)
		}
	}
}

// random returns bytes that nothing else has.
func random(n int) []byte {
	data := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(n), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())})
	_, _ = source.Read(data) // it never fails
	return data
}
