package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestPut_WhatIsStoredIsRead(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		run := b.run()
		for _, n := range []int{0, 1, chunkBytes, chunkBytes + 1, 2*spoolBytes + 7} {
			data := random(n)
			ref := b.put(run, data)
			if ref.Size != int64(n) || ref.MediaType != "text/plain" {
				t.Errorf("%d bytes: %v", n, ref)
			}
			b.reads(cfg, ref, data)
			data = random(n + 1)
			ref, err := b.store.PutFrom(b.ctx, run, "text/plain", bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			b.reads(cfg, ref, data)
		}
	})
}

func TestPut_SameContentIsStoredOnce(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		data := random(100_000)
		first := b.put(b.run(), data)
		second, err := b.open(cfg).PutFrom(b.ctx, b.run(), "text/plain", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(first, second) {
			t.Errorf("%v and %v for the same content", first, second)
		}
		if n := b.count(`select count(*) from pgexec.blobs`); n != 1 {
			t.Errorf("%d blobs for one content", n)
		}
		if n := b.count(`select count(*) from pgexec.blob_refs`); n != 2 {
			t.Errorf("%d references of two runs", n)
		}
	})
}

// A writer that died in the middle is no writer: the next one stores all of it.
func TestPut_FinishesWhatAnotherHasBegun(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		data := random(3 * chunkBytes)
		at, stored, err := b.store.begin(b.ctx, b.run(), "text/plain", inMemory(data))
		if err != nil || stored {
			t.Fatal(stored, err)
		}
		bucket, key, err := b.store.locate(b.ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		cut := errors.New("cut")
		if err := bucket.write(b.ctx, key, io.MultiReader(bytes.NewReader(data[:chunkBytes]), failing{cut})); !errors.Is(err, cut) {
			t.Fatal(err)
		}
		ref := b.put(b.run(), data)
		if ref.Url != at {
			t.Errorf("stored at %s, not at %s", ref.Url, at)
		}
		b.reads(cfg, ref, data)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What somebody has removed from a store, or cut off, is put back where it was by whoever stores the content again: all that
// refer to it have it again.
func TestPut_MendsWhatWasRemoved(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		for what, damage := range map[string]func([]byte) []byte{
			"gone": func([]byte) []byte { return nil },
			"cut":  func(d []byte) []byte { return d[:len(d)-1] },
		} {
			data := random(1000)
			ref := b.put(b.run(), data)
			b.damage(ref, damage)
			again, err := b.open(cfg).Put(b.ctx, b.run(), "text/plain", data)
			if err != nil || again.Url != ref.Url {
				t.Fatalf("%s: stored again at %s, %v; it was at %s", what, again.GetUrl(), err, ref.Url)
			}
			b.reads(cfg, ref, data)
		}
	})
}

// A directory that cannot be written to is refused at the start, by name.
func TestCheck_DirectoryThatCannotBeWrittenTo(t *testing.T) {
	b := setup(t, Config{})
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(parent, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	stores := []string{"file://" + file}
	if os.Geteuid() != 0 { // who may write everywhere
		stores = append(stores, "file://"+closed)
	}
	for _, store := range stores {
		if err := b.open(Config{Write: store}).Check(b.ctx); err == nil || !strings.Contains(err.Error(), store) {
			t.Errorf("%s: %v", store, err)
		}
		if err := b.open(Config{Write: "file://" + parent, Read: []string{"file://" + closed}}).Check(b.ctx); err != nil {
			t.Errorf("a directory that is only read: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(parent, "*.tmp")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A store that has blobs and is not read is named, so that who changes stores hears of it before a node needs one.
func TestUnread_NamesStoresThatAreNotRead(t *testing.T) {
	b := setup(t, Config{})
	first, second := "file://"+t.TempDir(), "file://"+t.TempDir()
	check := func(cfg Config, want ...string) {
		t.Helper()
		got, err := b.open(cfg).Unread(b.ctx)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("of %+v: %v, %v, want %v", cfg, got, err, want)
		}
	}
	check(Config{})
	for _, store := range []string{Database, first, second, second} {
		if _, err := b.open(Config{Write: store}).Put(b.ctx, b.run(), "text/plain", random(100)); err != nil {
			t.Fatal(err)
		}
	}
	check(Config{}, first, second)
	check(Config{Write: first + "/"}, second)
	check(Config{Write: second, Read: []string{first}})
}

func TestGet_AlteredOrMissingIsAFault(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		b := setup(t, cfg)
		run := b.run()
		for what, damage := range map[string]struct {
			alter func([]byte) []byte
			code  string
		}{
			"other bytes": {func(d []byte) []byte { d[len(d)/2]++; return d }, CodeAltered},
			"cut":         {func(d []byte) []byte { return d[:len(d)-1] }, CodeAltered},
			"longer":      {func(d []byte) []byte { return append(d, 0) }, CodeAltered},
			"gone":        {func([]byte) []byte { return nil }, CodeMissing},
		} {
			ref := b.put(run, random(1000))
			b.damage(ref, damage.alter)
			b.faulty(cfg, ref, damage.code)
			if t.Failed() {
				t.Fatal(what)
			}
		}
	})
}

// damage changes the bytes in the store behind its back; nil removes them.
func (b *bundle) damage(ref *pb.Blob, alter func([]byte) []byte) {
	b.Helper()
	if file, ok := strings.CutPrefix(ref.Url, "file://"); ok {
		data, err := os.ReadFile(file)
		if err == nil {
			if data = alter(data); data == nil {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, data, 0o600)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		return
	}
	var data []byte
	if err := b.pool.QueryRow(b.ctx, `delete from pgexec.blob_chunks where url = $1 returning bytes`, ref.Url).Scan(&data); err != nil {
		b.Fatal(err)
	}
	if data = alter(data); data != nil {
		b.exec(`insert into pgexec.blob_chunks (url, n, bytes) values ($1, 0, $2)`, ref.Url, data)
	}
}

// A reference is read wherever it is, as long as that store is configured.
func TestGet_ReadsFromFormerStores(t *testing.T) {
	dir := "file://" + filepath.Join(t.TempDir(), "some", "where")
	b := setup(t, Config{Write: dir})
	data := random(1000)
	ref := b.put(b.run(), data)
	b.reads(Config{Read: []string{dir + "/"}}, ref, data)
	_, err := b.open(Config{}).Get(b.ctx, ref)
	var f *Fault
	if err == nil || errors.As(err, &f) || !strings.Contains(err.Error(), dir) {
		t.Errorf("reading from a store that is not configured: %v", err)
	}
}

func TestStore_SaysWhatIsWrongWithAURL(t *testing.T) {
	b := setup(t, Config{})
	for u, want := range map[string]string{
		"/var/lib/blobs":       "no URL",
		"file://var/lib/blobs": "absolute",
		"s3://bucket?prefix=a": "s3://bucket/a",
		"s3://bucket":          "gocloud.dev/blob/s3blob",
	} {
		if err := b.open(Config{Write: u}).Check(b.ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", u, err, want)
		}
	}
}

func TestPut_TooLargeIsAFault(t *testing.T) {
	t.Parallel()
	c := &content{size: MaxBytes + 1}
	_, err := New(nil, Config{}).put(t.Context(), [16]byte{}, "", c)
	var f *Fault
	if !errors.As(err, &f) || f.Code != CodeTooLarge {
		t.Errorf("storing %d bytes: %v", c.size, err)
	}
}

func TestFind_ByURLAndByContent(t *testing.T) {
	b := setup(t, Config{})
	run := b.run()
	ref := b.put(run, random(10))
	hash := strings.TrimPrefix(ref.Url, Database)[:64]
	for _, name := range []string{ref.Url, hash} {
		if found, err := b.store.Find(b.ctx, name); err != nil || len(found) != 1 || !proto.Equal(found[0], ref) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if found, err := b.store.Find(b.ctx, "db:nothing"); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err := b.store.List(b.ctx, run); err != nil || len(found) != 1 || !proto.Equal(found[0], ref) {
		t.Errorf("of the run: %v, %v", found, err)
	}
}

func TestContentsIn_FindsEveryReference(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	for _, c := range []struct {
		want int
		text string
	}{
		{0, `{"sha256":"` + one + `"}`},
		{0, `{"$blob":1}`},
		{1, `{"$blob":{"url":"db:` + one + `-0","sha256":"` + one + `"}}`},
		{2, `[{"$blob" : {"sha256" : "` + one + `"}}, {"a":{"$blob":{"sha256":"` + two + `"}}}, "x` + two + `y"]`},
	} {
		if got := ContentsIn([]byte(c.text)); len(got) != c.want {
			t.Errorf("%s: %d contents, want %d", c.text, len(got), c.want)
		}
	}
}

// A run reads soon what it has just written, and what is read often; what is in memory is bounded.
func TestCache_KeepsTheLastUsedWithinItsBound(t *testing.T) {
	t.Parallel()
	c := newCache(100)
	for i := range byte(10) {
		c.add([]byte{i}, make([]byte, 20))
		if _, ok := c.get([]byte{0}); !ok {
			t.Fatalf("what is used all the time is dropped after %d more", i)
		}
	}
	c.add([]byte{99}, make([]byte, 26)) // over a quarter of the bound
	if _, ok := c.get([]byte{99}); ok || c.size > 100 || len(c.byHash) != 5 || c.recent.Len() != 5 {
		t.Errorf("%d bytes in %d entries", c.size, c.recent.Len())
	}
}
