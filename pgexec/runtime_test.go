package pgexec_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	gcblob "gocloud.dev/blob"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// slowOpener opens no bucket before it is told to give up.
type slowOpener chan struct{}

func (o slowOpener) OpenBucketURL(ctx context.Context, _ *url.URL) (*gcblob.Bucket, error) {
	close(o)
	<-ctx.Done()
	return nil, ctx.Err()
}

func echoing() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "echo", func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) { return in, nil }, nil)
	return kinds
}

// C20: a drain that begins during the start-up is one as any other.
func TestRun_DrainWhileABlobStoreOpens(t *testing.T) {
	t.Parallel()
	opening := make(slowOpener)
	gcblob.DefaultURLMux().RegisterBucket("slow-to-open", opening)
	rt, err := pgexec.New(pgtest.DB(t), &pgexec.Config{Kinds: echoing(), Logger: testLogger(t), BlobStore: "slow-to-open://bucket"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	late := time.After(patience)
	select {
	case <-opening:
	case <-late:
		t.Fatal("the store is not opened")
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("a drained replica returns %v", err)
		}
	case <-late:
		t.Fatal("the replica hangs")
	}
}

// G8: what a replica does at the same time needs some connections; with fewer its loops would wait for each other.
func TestNew_PoolThatIsTooSmallIsRefused(t *testing.T) {
	t.Parallel()
	for size, refused := range map[int32]bool{1: true, 3: true, 4: false} {
		cfg := pgtest.DB(t).Config()
		cfg.MaxConns = size
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		_, err = pgexec.New(pool, &pgexec.Config{Kinds: echoing()})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "needs at least 4: raise MaxConns") {
			t.Errorf("a pool of %d: %v", size, err)
		}
	}
}

// A kind whose name no graph may use would be one that nothing can run.
func TestAddKind_NamesThatNoNodeCanHaveAreRefused(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, *pgexec.Node, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	for name, words := range map[string]string{
		"":                       "is empty",
		strings.Repeat("k", 129): "129 bytes",
		"a#b":                    "contains '#'",
		"a\nb":                   "contains '\\n'",
		"a\u0085b":               "contains",
		"a\xff":                  "not valid UTF-8",
		"signal":                 "built in",
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, words) {
					t.Errorf("%q: %q, want it to say %q", name, p, words)
				}
			}()
			pgexec.AddKind(pgexec.NewKinds(), name, handler, nil)
		}()
	}
	pgexec.AddKind(pgexec.NewKinds(), "größer: als/alles 7", handler, nil)
}
