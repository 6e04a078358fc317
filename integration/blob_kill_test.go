package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// replicaBlobs is the blob store of a replica process.
const replicaBlobs = "PGEXEC_REPLICA_BLOBS"

// blobStep is a node of a chain whose every input and output is too large for a record.
type blobStep struct {
	Left int    `json:"left"`
	Data string `json:"data"`
}

// blobReplicaProcess is the whole of a replica process that makes large payloads, other ones each time it is killed.
func blobReplicaProcess() {
	runReplica(func(*os.File) *pgexec.Config {
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, "blob step", func(ctx context.Context, n *pgexec.Node, in blobStep) (out blobStep, err error) {
			for _, p := range n.Parents() {
				if err := p.Output(&out); err != nil {
					return out, err
				}
			}
			file, err := n.PutBlob(ctx, "text/plain", strings.NewReader(letters(100)))
			if err != nil {
				return out, err
			}
			if in.Left > 0 {
				n.Spawn("blob step", blobStep{in.Left - 1, letters(40_000)}, nil)
				n.Spawn("blob file", file, nil)
			}
			return blobStep{in.Left, letters(40_000)}, nil
		}, nil)
		pgexec.AddKind(kinds, "blob file", func(ctx context.Context, n *pgexec.Node, file pgexec.BlobRef) (int64, error) {
			r, err := n.OpenBlob(ctx, file)
			if err != nil {
				return 0, err
			}
			defer r.Close() //nolint:errcheck // it is only read
			var b strings.Builder
			_, err = io.Copy(&b, r)
			return file.Size, err
		}, nil)
		return &pgexec.Config{
			Kinds: kinds, Host: os.Getenv(replicaHost), BlobStore: os.Getenv(replicaBlobs),
			PoisonAfter: 1000, // replicas die faster here than runs make progress
			Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
	})
}

// letters returns text that nothing else has.
func letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rand.N(26))
	}
	return string(b)
}

// A replica is killed again and again, so also between the moment a blob is stored and that of the record which has it, while a collector without
// any grace passes all the time. No record ever refers to a blob that is not there, and in the end there are exactly
// the blobs that records refer to.
func TestBlobs_KilledBetweenBlobAndRecord(t *testing.T) {
	for _, store := range []string{"db", "file"} {
		t.Run(store, func(t *testing.T) { killWithBlobs(t, store == "file") })
	}
}

func killWithBlobs(t *testing.T, inFiles bool) {
	s := stormOf(t)
	s.runs, s.chaos = 20, min(s.chaos/3, 10*time.Second)
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.chaos+3*s.settle)
	defer cancel()
	dir, store := t.TempDir(), "db:"
	if inFiles {
		store = "file://" + filepath.Join(dir, "blobs")
	}
	client := pgexec.NewClient(pool, &pgexec.ClientConfig{BlobStore: store, Logger: testLogger(t)})
	t.Cleanup(client.Close)
	for range s.runs {
		start(ctx, t, client, "blob step", blobStep{Left: 15})
	}

	var background sync.WaitGroup
	collectCtx, stop := context.WithCancel(ctx)
	defer stop()
	orphans := 0
	background.Go(func() {
		for collectCtx.Err() == nil {
			done, err := client.CollectBlobs(collectCtx, 0)
			if err != nil && collectCtx.Err() == nil && !errors.Is(err, pgexec.ErrOtherCollector) {
				t.Errorf("collect: %v", err)
			}
			orphans += done.Blobs
		}
	})
	kills := killReplicas(ctx, t, s, store)
	waitForAll(ctx, t, pool, s)
	stop()
	background.Wait()

	if failed := query[string](ctx, t, pool, `select coalesce(string_agg(error, '; '), '') from pgexec.runs where status <> 'succeeded'`); failed != "" {
		t.Fatalf("runs failed: %.2000s", failed)
	}
	for passes := 0; passes < 2; {
		done, err := client.CollectBlobs(ctx, 0)
		switch {
		case err == nil:
			passes++
		case !errors.Is(err, pgexec.ErrOtherCollector): // whose statement may still run although its client has gone
			t.Fatal(err)
		}
		orphans += done.Blobs
	}
	t.Logf("%d kills left %d blobs that no record has", kills, orphans)
	if orphans == 0 {
		t.Error("no kill came between a blob and its record: the test shows nothing")
	}
	checkBlobs(ctx, t, pool, client, filepath.Join(dir, "blobs"))
}

// killReplicas keeps two replica processes, of which one is killed every moment, and then two that live.
func killReplicas(ctx context.Context, t *testing.T, s storm, store string) (kills int) {
	dir, url := t.TempDir(), pgtest.URL(t)
	run := func() *pgtest.Child {
		return pgtest.StartChild(t, "blob replica", replicaURL+"="+url, replicaDir+"="+dir, replicaHost+"=r", replicaBlobs+"="+store)
	}
	seats := []*pgtest.Child{run(), run()}
	for end := time.Now().Add(s.chaos); time.Now().Before(end); kills++ {
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-time.After(200*time.Millisecond + rand.N(400*time.Millisecond)):
		}
		seat := rand.N(len(seats))
		seats[seat].Kill()
		seats[seat] = run()
	}
	return kills
}

// checkBlobs compares what the logs refer to with what there is: each is read, and nothing else is there.
func checkBlobs(ctx context.Context, t *testing.T, pool *pgxpool.Pool, client *pgexec.Client, dir string) {
	t.Helper()
	refs := make(map[string]pgexec.BlobRef)
	rows, err := pool.Query(ctx, `select v::text from pgexec.run_log l,
		jsonb_path_query(pgexec.decode(l.record), 'strict $.** ? (exists (@."$blob"))') v`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text []byte
		var ref pgexec.BlobRef
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &ref); err != nil {
			t.Fatal(err)
		}
		refs[ref.SHA256] = ref
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		r, err := client.OpenBlob(ctx, ref)
		if err == nil {
			var b strings.Builder
			_, err = io.Copy(&b, r)
			r.Close() //nolint:errcheck // it is only read
		}
		if err != nil {
			t.Errorf("a blob that a record has: %v", err)
		}
	}
	t.Logf("records have %d blobs", len(refs))
	if n := query[int](ctx, t, pool, `select count(*) from pgexec.blobs`); n != len(refs) || n == 0 {
		t.Errorf("there are %d blobs; records have %d", n, len(refs))
	}
	stored := query[int](ctx, t, pool, `select count(distinct url) from pgexec.blob_chunks`)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // there is none for the database's store
		if err == nil && d.Type().IsRegular() && filepath.Ext(d.Name()) != ".tmp" { // what a killed writer was in the middle of goes when it is old
			stored++
		}
		return nil
	})
	if stored != len(refs) {
		t.Errorf("the store has %d blobs; records have %d", stored, len(refs))
	}
}
