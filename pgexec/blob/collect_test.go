package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestCollect_TakesWhatNobodyRefersTo(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		running, ended, gone := b.run(), b.run(), b.run()
		kept := []*pb.Blob{b.put(running, random(50)), b.put(ended, random(51)), b.put(ended, random(52)), b.put(ended, random(53))}
		raw, err := proto.Marshal(kept[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := b.store.Hold(b.ctx, ended, [][]byte{kept[3].Sha256}, true); err != nil { // within another blob
			t.Fatal(err)
		}
		lost := []*pb.Blob{b.put(ended, random(54)), b.put(gone, random(55)), b.put([16]byte{}, random(56))}
		begun := inMemory(random(2 * chunkBytes))
		if _, _, err := b.store.begin(b.ctx, [16]byte{}, "", begun); err != nil { // by a writer that died
			t.Fatal(err)
		}
		b.end(ended, append(raw, hex.EncodeToString(kept[2].Sha256)...))
		b.exec(`delete from pgexec.runs where run_id = $1`, gone)

		if done, err := b.store.Collect(b.ctx, time.Hour); err != nil || done != (Collected{}) {
			t.Errorf("within the grace: %v, %v", done, err)
		}
		for range 2 { // a reference that was settled stays so
			b.collect()
			for _, ref := range kept {
				if _, err := b.open(cfg).Get(b.ctx, ref); err != nil {
					t.Errorf("what is referred to: %v", err)
				}
			}
		}
		for _, ref := range lost {
			b.faulty(cfg, ref, CodeMissing)
		}
		if n := b.count(`select count(*) from pgexec.blobs`); n != len(kept) {
			t.Errorf("%d rows for %d blobs", n, len(kept))
		}
		if n := b.count(`select count(*) from pgexec.blob_refs where logged`); n != 2 {
			t.Errorf("%d references were found in the log, want 2", n)
		}
	})
}

// A pass that meets another one judges nothing, removes what has been judged, and says so.
func TestCollect_GivesWayAndSaysSo(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		b.put([16]byte{}, random(50))
		if err := b.store.doom(b.ctx, 0); err != nil {
			t.Fatal(err)
		}
		b.put([16]byte{}, random(60))
		other, err := b.pool.Begin(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Exec(b.ctx, `select pg_advisory_xact_lock(1885824376, -1)`); err != nil {
			t.Fatal(err)
		}
		if done, err := b.store.Collect(b.ctx, 0); !errors.Is(err, ErrOtherCollector) || done != (Collected{Blobs: 1, Bytes: 50}) {
			t.Errorf("while another one is at work: %+v, %v", done, err)
		}
		if err := other.Rollback(b.ctx); err != nil {
			t.Fatal(err)
		}
		if done := b.collect(); done != (Collected{Blobs: 1, Bytes: 60}) {
			t.Errorf("afterwards: %+v", done)
		}
	})
}

// What a writer that was killed was in the middle of is removed from a directory when it is old.
func TestCollect_SweepsUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	b := setup(t, Config{Write: "file://" + dir})
	data := random(100)
	ref := b.put(b.run(), data)
	old, fresh := filepath.Join(dir, "ab", "x.1.tmp"), filepath.Join(dir, "ab", "x.2.tmp")
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{old, fresh} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Add(-2 * minTempAge)
	if err := errors.Join(os.Chtimes(old, at, at), os.Chtimes(strings.TrimPrefix(ref.Url, "file://"), at, at)); err != nil {
		t.Fatal(err)
	}
	b.collect()
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old unfinished file: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a file that may be being written: %v", err)
	}
	b.reads(Config{Read: []string{"file://" + dir}}, ref, data)
}

// A collector that was held up, for however long, at any point removes nothing of a content that has come back.
func TestCollect_LateRemovalHitsNothingNew(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		data := random(1000)
		old := b.put([16]byte{}, data)
		if err := b.store.doom(b.ctx, 0); err != nil {
			t.Fatal(err)
		}
		again := b.put(b.run(), data) // between the mark and the removal
		b.reads(cfg, again, data)
		var done Collected
		if err := b.store.removeDoomed(b.ctx, &done); err != nil || done.Blobs != 1 {
			t.Fatal(done, err)
		}
		b.reads(cfg, again, data)
		if err := b.store.remove(b.ctx, old.Url); err != nil { // long after it was forgotten
			t.Fatal(err)
		}
		b.reads(cfg, again, data)
	})
}

// A writer that was held up while its place was collected notices, leaves nothing there and stores its content elsewhere.
func TestCollect_PlaceOfAWriterThatWasHeldUp(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		c := inMemory(random(1000))
		at, _, err := b.store.begin(b.ctx, [16]byte{}, "", c)
		if err != nil {
			t.Fatal(err)
		}
		b.collect()
		if ok, err := b.store.write(b.ctx, at, c); ok || err != nil {
			t.Fatalf("written to a place that was collected: %t, %v", ok, err)
		}
		b.faulty(cfg, &pb.Blob{Url: at, Size: c.size, Sha256: c.hash[:]}, CodeMissing)
		b.reads(cfg, b.put(b.run(), c.data), c.data)
	})
}

// Writers store the same few contents again and again for runs of their own, and end them, while collectors pass without
// any grace. What a run that has not ended refers to is there, every time; in the end there is what is referred to, and no more.
func TestCollect_NeverTakesWhatIsReferredTo(t *testing.T) {
	const writers, collectors = 6, 2
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		rounds := 100
		if testing.Short() {
			rounds = 20
		}
		contents := make([][]byte, 4)
		for i := range contents {
			contents[i] = random(1000 + i)
		}
		var writing, collecting sync.WaitGroup
		var taken, again atomic.Int64
		ctx, stop := context.WithCancel(b.ctx)
		for range collectors {
			store := b.open(cfg)
			collecting.Go(func() {
				for ctx.Err() == nil {
					done, err := store.Collect(ctx, 0)
					if err != nil && ctx.Err() == nil && !errors.Is(err, ErrOtherCollector) {
						t.Error(err)
					}
					taken.Add(int64(done.Blobs))
				}
			})
		}
		for w := range writers {
			writing.Go(func() {
				for i := range rounds {
					if err := b.putAndEnd(cfg, contents[(w+i)%len(contents)], i%3 == 0); err != nil {
						t.Errorf("writer %d, round %d: %v", w, i, err)
						return
					}
					again.Add(1)
				}
			})
		}
		writing.Wait()
		stop()
		collecting.Wait()
		t.Logf("%d times stored, %d times collected", again.Load(), taken.Load())
		if taken.Load() == 0 {
			t.Error("nothing was ever collected: the test shows nothing")
		}
		for range 2 {
			b.collect()
		}
		if n := b.count(`select count(*) from pgexec.blobs b where not exists (select from pgexec.blob_refs f where f.sha256 = b.sha256)`); n != 0 {
			t.Errorf("%d blobs are left that nobody refers to", n)
		}
		if n := b.count(`select count(*) from pgexec.blob_refs f join pgexec.runs r using (run_id) where r.labels = '{}'`); n != 0 {
			t.Errorf("%d references are left of runs whose logs have none", n)
		}
		if n := b.count(`select count(distinct url) from pgexec.blob_chunks c where not exists (select from pgexec.blobs b where b.url = c.url)`); n != 0 {
			t.Errorf("%d blobs have left bytes behind", n)
		}
	})
}

// putAndEnd is the life of a run: it stores a content, perhaps records it, ends, and is read.
func (b *bundle) putAndEnd(cfg Config, data []byte, record bool) error {
	var run [16]byte
	if err := b.pool.QueryRow(b.ctx, `insert into pgexec.runs (kind) values ('test') returning run_id`).Scan(&run); err != nil {
		return err
	}
	s := New(b.pool, cfg)
	defer s.Close()
	ref, err := s.Put(b.ctx, run, "text/plain", data)
	if err != nil {
		return err
	}
	s.cache = newCache(0)
	if _, err := s.Get(b.ctx, ref); err != nil {
		return fmt.Errorf("just stored: %w", err)
	}
	if record {
		if _, err := b.pool.Exec(b.ctx, `insert into pgexec.run_log (run_id, seq, record) values ($1, 1, $2)`, run, ref.Sha256); err != nil {
			return err
		}
	}
	if _, err := b.pool.Exec(b.ctx, `update pgexec.runs set status = 'succeeded', labels = case when $2 then '{"kept":"yes"}'::jsonb else '{}' end where run_id = $1`, run, record); err != nil {
		return err
	}
	if _, err := s.Get(b.ctx, ref); record && err != nil {
		return fmt.Errorf("recorded: %w", err)
	}
	if !record {
		return nil
	}
	// From now on nothing that is recorded of the content may keep others from being collected.
	_, err = b.pool.Exec(b.ctx, `delete from pgexec.runs where run_id = $1`, run)
	return err
}
