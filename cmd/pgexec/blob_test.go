package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// Blobs by the command line: a result that is too large for the log is in the store that the replica was given, and is
// printed, listed and fetched; what a run refers to is not removed.
func TestBlob_GetLsGC(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	url, dir := pgtest.URL(t), t.TempDir()
	replica := start(t, []string{"PGEXEC_DATABASE_URL=" + url, "PGEXEC_BLOB_STORE=file://" + dir}, "serve", "--http", "off")
	replica.line("replica is ready")
	with := func(args ...string) []string { return append(args, "--database-url", url) }
	stored := func(args ...string) []string { return with(append(args, "--blob-read", "file://"+dir)...) }

	id := strings.TrimSpace(mustInvoke(t, with("run", "start", "sql", "--input", `{"sql": "select repeat('x', 100000) as x"}`)...))
	want := mustInvoke(t, stored("run", "wait", id)...)
	if len(want) < 100_000 || !json.Valid([]byte(want)) {
		t.Errorf("the result is %.100s", want)
	}
	if got := invoke(t, with("run", "wait", id)...); got.code != exitFailure || !strings.Contains(got.err, "file://"+dir) {
		t.Errorf("without the store: %+v", got)
	}
	var blobs []blobRow
	if err := json.Unmarshal([]byte(mustInvoke(t, with("blob", "ls", id, "-o", "json")...)), &blobs); err != nil || len(blobs) != 1 {
		t.Fatal(blobs, err)
	}
	if out := mustInvoke(t, with("blob", "ls", id)...); !strings.Contains(out, blobs[0].URL) || !strings.Contains(out, "application/json") {
		t.Errorf("ls: %s", out)
	}
	if out := mustInvoke(t, stored("blob", "gc", "--grace", "0s")...); out != "removed 0 blobs of 0 bytes\n" {
		t.Errorf("gc: %s", out)
	}
	want = strings.TrimSuffix(want, "\n")
	if out := mustInvoke(t, stored("blob", "get", blobs[0].SHA256)...); out != want {
		t.Errorf("get: %.100s", out)
	}
	file := filepath.Join(t.TempDir(), "out")
	mustInvoke(t, stored("blob", "get", blobs[0].URL, "-o", file)...)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != want {
		t.Errorf("get -o: %v, %.100s", err, raw)
	}

	if err := os.WriteFile(strings.TrimPrefix(blobs[0].URL, "file://"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, stored("blob", "get", blobs[0].URL, "-o", file)...); got.code != exitFailure || !strings.Contains(got.err, "altered") {
		t.Errorf("get of what was altered: %+v", got)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != want {
		t.Errorf("a file was replaced by what is not the blob: %v, %.100s", err, raw)
	}
	if got := invoke(t, with("blob", "get", "db:nothing")...); got.code != exitFailure || !strings.Contains(got.err, "blob db:nothing: blob not found") {
		t.Errorf("get of nothing: %+v", got)
	}
}

// What is stored by the command line is a value of inputs, and is read again.
func TestBlobPut_IsAValue(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	with := func(args ...string) []string { return append(args, "--database-url", pgtest.URL(t)) }
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte("[1, 2]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]outcomeOf{
		"application/json": invoke(t, with("blob", "put", file)...),
		"text/x":           invokeWith(t, "[1, 2]", with("blob", "put", "-", "--media-type", "text/x")...),
	} {
		var ref pgexec.BlobRef
		if err := json.Unmarshal([]byte(got.out), &ref); err != nil || ref.MediaType != what || ref.Size != 6 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if out := mustInvoke(t, with("blob", "get", ref.URL)...); out != "[1, 2]" {
			t.Errorf("%s: read %q", what, out)
		}
	}
	if got := invoke(t, with("blob", "put", file+"x")...); got.code != exitFailure || !strings.Contains(got.err, file+"x") {
		t.Errorf("of no file: %+v", got)
	}
}

// A collector that meets another one says so: in words, to programs, and by its exit code.
func TestBlobGC_GivesWayToAnotherCollector(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	gc := func(args ...string) outcomeOf {
		return invoke(t, append([]string{"blob", "gc", "--grace", "0s", "--database-url", pgtest.URL(t)}, args...)...)
	}
	if _, err := pgexec.NewClient(pool, nil).PutBlob(t.Context(), "text/plain", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `select pg_advisory_xact_lock(1885824376, -1)`); err != nil {
		t.Fatal(err)
	}
	if got := gc(); got.code != exitFailure || got.out != "removed 0 blobs of 0 bytes\n" || !strings.Contains(got.err, "another collector is at work") {
		t.Errorf("%+v", got)
	}
	var seen collectedJSON
	if got := gc("-o", "json"); got.code != exitFailure || json.Unmarshal([]byte(got.out), &seen) != nil || seen != (collectedJSON{GaveWay: true}) {
		t.Errorf("%+v", got)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := gc(); got.code != exitOK || got.out != "removed 1 blob of 1 byte\n" || got.err != "" {
		t.Errorf("%+v", got)
	}
}

// What a store's URL lacks is said at the start, by name.
func TestServe_RefusesABlobStoreItCannotOpen(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	got := invoke(t, "serve", "--http", "off", "--database-url", pgtest.URL(t), "--blob-store", "ftp://host/x")
	if got.code != exitFailure || !strings.Contains(got.err, "open blob store ftp://host/x") {
		t.Errorf("%+v", got)
	}
}
