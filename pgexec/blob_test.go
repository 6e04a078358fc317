package pgexec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// text returns JSON text of n bytes.
func text(n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`)
}

// blobKinds: "make" returns n bytes, "size" tells the size of its input, "sizes" those of its parents' outputs.
func blobKinds() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "make", func(_ context.Context, _ *pgexec.Node, n int) (json.RawMessage, error) { return text(n), nil }, nil)
	pgexec.AddKind(kinds, "size", func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (int, error) { return len(in), nil }, nil)
	pgexec.AddKind(kinds, "sizes", func(_ context.Context, n *pgexec.Node, _ none) (sizes []int, err error) {
		for _, p := range n.Parents() {
			raw, err := p.RawOutput()
			if err != nil {
				return nil, err
			}
			sizes = append(sizes, len(raw))
		}
		return sizes, nil
	}, nil)
	return kinds
}

// inRecords counts the bytes of a run's log.
func (b *bundle) inRecords(id pgexec.RunID) int {
	return query[int](b, `select sum(length(record)) from pgexec.run_log where run_id = $1`, id)
}

// collected makes a pass of the collector without any grace.
func (b *bundle) collected() int {
	b.t.Helper()
	done, err := b.client.CollectBlobs(b.ctx, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return done.Blobs
}

// An output of any size is recorded and read by what comes after it; the log has a reference of it, psql shows that, and the client
// gets the bytes. The same bytes are stored once (C22).
func TestBlob_LargeOutput(t *testing.T) {
	b := setup(t)
	const size = 5 << 20
	kinds := blobKinds()
	pgexec.AddKind(kinds, "fan", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		one, two := n.Spawn("make", size, nil), n.Spawn("make", size, nil)
		n.Spawn("sizes", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{one, two}})
		return nil, nil
	}, nil)
	b.replica(kinds)
	fan, one := b.start("fan", nil), b.start("make", size)
	b.succeed(fan)
	run := b.succeed(one)
	if string(run.Result) != string(text(size)) {
		t.Errorf("the result has %d bytes", len(run.Result))
	}
	if got := query[string](b, `select output::text from pgexec.nodes where run_id = $1 and kind = 'sizes'`, fan); got != fmt.Sprintf("[%d, %d]", size, size) {
		t.Errorf("the outputs have %s bytes", got)
	}
	if n := b.inRecords(fan); n > 4000 {
		t.Errorf("the log has %d bytes", n)
	}
	if n := query[int](b, `select count(*) from pgexec.blobs`); n != 1 {
		t.Errorf("%d blobs for one content", n)
	}
	const view = `select r.result #>> '{$blob,sha256}' = encode(b.sha256, 'hex') and length(pgexec.blob_bytes(b.url)) = $2 and pgexec.blob_bytes(encode(b.sha256, 'hex')) = pgexec.blob_bytes(b.url)
		from pgexec.runs r, pgexec.blobs b where r.run_id = $1`
	if !query[bool](b, view, one, size) {
		t.Error("psql does not show the result's blob")
	}
	if n := b.collected(); n != 0 {
		t.Errorf("%d blobs that a log refers to were collected", n)
	}
}

// An input of 64 MiB works, by Go and by SQL, for a run, a spawned node and a child run.
func TestBlob_LargeInput(t *testing.T) {
	if testing.Short() {
		t.Skip("moves hundreds of MiB")
	}
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	b.ctx = ctx
	const size, childSize = 64 << 20, 8 << 20 // a child's input is both: a node's and a run's
	kinds := blobKinds()
	pgexec.AddKind(kinds, "spawner", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		one := n.Spawn("size", text(size), nil)
		child := n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "size", Input: text(childSize)}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{one}})
		n.Spawn("size", json.RawMessage(`[{"$ref":"size-1#"},{"$ref":"run-1#"}]`), &pgexec.SpawnOpts{ID: "both", InputRefs: true, After: []pgexec.NodeRef{child}})
		return nil, nil
	}, nil)
	b.replica(kinds)
	byGo, spawner := b.start("size", text(size)), b.start("spawner", nil)
	bySQL := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input) values ('size', to_jsonb(repeat('x', $1))) returning run_id`, size-2)
	for id, want := range map[pgexec.RunID]string{byGo: fmt.Sprint(size), bySQL: fmt.Sprint(size), spawner: "18"} {
		run, err := b.client.Wait(ctx, id)
		if err != nil || string(run.Result) != want {
			t.Errorf("run %+v: %v, want %s", run, err, want)
		}
	}
	const outputs = `select string_agg(output::text, ' ' order by seq) from pgexec.nodes where run_id = $1 and kind in ('size', 'run')`
	if got, want := query[string](b, outputs, spawner), fmt.Sprintf("%d %d 18", size, childSize); got != want {
		t.Errorf("the nodes returned %s, want %s", got, want)
	}
}

// What a wait begins or ends with may be of any size: the default and the payload of a signal, the input and the result of a
// child run, which the parent has as the same blob.
func TestBlob_LargeInWaits(t *testing.T) {
	b := setup(t)
	const size = 100_000
	kinds := blobKinds()
	pgexec.AddKind(kinds, "waits", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		n.Spawn("sizes", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{
			n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "never", Timeout: "1ms", Default: text(size)}, nil),
			n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil),
			n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "echo", Input: text(size + 2)}, nil),
		}})
		return nil, nil
	}, nil)
	pgexec.AddKind(kinds, "echo", func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) { return in, nil }, nil)
	b.replica(kinds, briefly)
	id := b.start("waits", nil)
	b.eventually(`select count(*) = 1 from pgexec.runs where run_id = $1 and status = 'parked'`, id)
	if err := b.client.Signal(b.ctx, id, "go", text(size+1), nil); err != nil {
		t.Fatal(err)
	}
	if run, want := b.succeed(id), fmt.Sprintf("[%d,%d,%d]", size, size+1, size+2); string(run.Result) != want {
		t.Errorf("the outputs have %s bytes, want %s", run.Result, want)
	}
	if n := b.inRecords(id); n > 6000 {
		t.Errorf("the log has %d bytes", n)
	}
	const shared = `select count(*) from pgexec.blob_refs f join pgexec.runs r using (run_id) where f.sha256 = (select sha256 from pgexec.blobs where size = $1)`
	if n := query[int](b, shared, size+2); n != 2 {
		t.Errorf("%d runs refer to the child's result, want child and parent", n)
	}
	// The child's log is not needed for the parent's.
	if _, err := b.pool.Exec(b.ctx, `delete from pgexec.runs where parent_run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if n := b.collected(); n != 0 {
		t.Errorf("%d blobs that the parent's log refers to were collected", n)
	}
}

// A program outside gets and gives payloads of any size as it does others.
func TestBlob_LargeInTasks(t *testing.T) {
	b := setup(t)
	const size = 100_000
	if _, err := b.pool.Exec(b.ctx, `select pgexec.declare_kind('outside')`); err != nil {
		t.Fatal(err)
	}
	kinds := blobKinds()
	pgexec.AddKind(kinds, "asks", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		task := n.Spawn("outside", text(size), nil)
		n.Spawn("sizes", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{task}})
		return nil, nil
	}, nil)
	b.replica(kinds, briefly)
	id := b.start("asks", nil)
	b.eventually(`select count(*) = 1 from pgexec.tasks where run_id = $1`, id)
	const do = `select pgexec.complete(t.task_id, 'w', to_json(length(t.input::text)::text || repeat('x', $1))) from pgexec.take('outside', 'w') t`
	if !query[bool](b, do, size) {
		t.Error("the task's end does not count")
	}
	if run := b.succeed(id); string(run.Result) != fmt.Sprintf("[%d]", size+len("100000")+2) {
		t.Errorf("the output has %s bytes", run.Result)
	}
	if n := b.inRecords(id); n > 3000 {
		t.Errorf("the log has %d bytes", n)
	}
}

// A blob that is missing or altered fails the node that needs it, for good, and is named.
func TestBlob_MissingFailsTheNodeThatNeedsIt(t *testing.T) {
	for code, damage := range map[string]func(file string) error{
		"blob_missing": os.Remove,
		"blob_altered": func(file string) error { return os.WriteFile(file, text(50_000), 0o600) },
	} {
		for _, kind := range []string{"sizes", "size", pgexec.KindSignal} {
			t.Run(code+" "+kind, func(t *testing.T) {
				b := setup(t)
				dir := t.TempDir()
				proceed := make(chan struct{})
				kinds := blobKinds()
				pgexec.AddKind(kinds, "chain", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
					one := n.Spawn("make", 100_000, nil)
					gate := n.Spawn("gate", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{one}})
					n.Spawn(kind, text(60_000), &pgexec.SpawnOpts{ID: "needs it", After: []pgexec.NodeRef{one, gate}})
					return nil, nil
				}, nil)
				pgexec.AddKind(kinds, "gate", func(ctx context.Context, _ *pgexec.Node, _ none) (none, error) {
					select {
					case <-proceed:
						return nil, nil
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}, nil)
				onDisk := func(c *pgexec.Config) { c.BlobStore = "file://" + dir }
				first := b.replica(kinds, onDisk, func(c *pgexec.Config) { c.Grace = time.Millisecond })
				id := b.start("chain", nil)
				b.eventually(`select count(*) = 2 from pgexec.nodes where run_id = $1`, id)
				first.drain() // and what it remembers
				urls := query[[]string](b, `select array_agg(url) from pgexec.blobs`)
				for _, u := range urls {
					if err := damage(strings.TrimPrefix(u, "file://")); err != nil {
						t.Fatal(err)
					}
				}
				close(proceed)
				b.replica(kinds, onDisk)
				run := b.wait(id)
				if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "needs it") || !strings.Contains(run.Error, "file://"+dir) {
					t.Errorf("run is %s: %s", run.Status, run.Error)
				}
				const failed = `select pgexec.decode(record) #>> '{node,error,code}' || (pgexec.decode(record) #>> '{node,attempt}') from pgexec.run_log
					where run_id = $1 and pgexec.decode(record) #>> '{node,id}' = 'needs it'`
				if got := query[string](b, failed, id); got != code+"1" {
					t.Errorf("code and attempts are %s, want %s1", got, code)
				}
			})
		}
	}
}

// Files are values: a handler stores one, another reads it, in the same run or in another; a client does both. A blob
// is there for as long as any run has its value, and gone afterwards.
func TestBlob_FilesAreValues(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	type input struct {
		File pgexec.BlobRef `json:"file"`
		Wrap int            `json:"wrap"` // in so many bytes of other data
	}
	type output struct {
		Copy pgexec.BlobRef `json:"copy"`
		Rest string         `json:"rest"`
	}
	pgexec.AddKind(kinds, "upper", func(ctx context.Context, n *pgexec.Node, in input) (output, error) {
		r, err := n.OpenBlob(ctx, in.File)
		if err != nil {
			return output{}, err
		}
		defer r.Close() //nolint:errcheck // it is only read
		raw, err := io.ReadAll(r)
		if err != nil {
			return output{}, err
		}
		if _, err := n.PutBlob(ctx, "text/plain", strings.NewReader("never recorded, "+n.RunID().String())); err != nil {
			return output{}, err
		}
		ref, err := n.PutBlob(ctx, "text/plain", bytes.NewReader(bytes.ToUpper(raw)))
		return output{ref, strings.Repeat("x", in.Wrap)}, err
	}, nil)
	b.replica(kinds)
	put := func(s string) pgexec.BlobRef {
		ref, err := b.client.PutBlob(b.ctx, "text/plain", strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	for i, wrap := range []int{0, 100_000} { // the value in the log, and within a blob
		id := b.start("upper", input{put(fmt.Sprintf("some text %d", i)), wrap})
		put("nobody's")
		var out output
		if err := b.succeed(id).Output(&out); err != nil {
			t.Fatal(err)
		}
		if n := b.collected(); n != 2 {
			t.Errorf("%d blobs were collected, want nobody's and the one that was never recorded", n)
		}
		if got := b.content(out.Copy); got != fmt.Sprintf("SOME TEXT %d", i) {
			t.Errorf("the copy is %q", got)
		}
		refs, err := b.client.Blobs(b.ctx, id)
		if want := 2 + min(wrap, 1); err != nil || len(refs) != want {
			t.Errorf("the run has blobs %v (%v), want %d", refs, err, want)
		}
		found, err := b.client.FindBlob(b.ctx, out.Copy.SHA256)
		if err != nil || found != out.Copy {
			t.Errorf("found %v, %v", found, err)
		}
		if _, err := b.pool.Exec(b.ctx, `delete from pgexec.runs where run_id = $1`, id); err != nil {
			t.Fatal(err)
		}
		if n := b.collected(); n != len(refs) {
			t.Errorf("%d blobs were collected of a run that is gone, want %d", n, len(refs))
		}
		if _, err := b.client.FindBlob(b.ctx, out.Copy.URL); !errors.Is(err, pgexec.ErrBlobNotFound) {
			t.Errorf("a blob that was collected: %v", err)
		}
		if r, err := b.client.OpenBlob(b.ctx, out.Copy); err == nil {
			if _, err := io.ReadAll(r); !errors.Is(err, pgexec.ErrBlobFault) {
				t.Errorf("a blob that was collected: %v", err)
			}
		}
	}
}

func (b *bundle) content(ref pgexec.BlobRef) string {
	b.t.Helper()
	r, err := b.client.OpenBlob(b.ctx, ref)
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}

// A value that waits, with a run for its time or in a signal for its wait, is a reference.
func TestBlob_ValuesThatWaitAreReferences(t *testing.T) {
	b := setup(t)
	put := func(s string) map[string]any {
		ref, err := b.client.PutBlob(b.ctx, "text/plain", strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"deep": []any{ref}}
	}
	id, err := b.client.Start(b.ctx, "x", put("a"), &pgexec.StartOpts{RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.client.Signal(b.ctx, id, "x", put("b"), nil); err != nil {
		t.Fatal(err)
	}
	put("c")
	if n := b.collected(); n != 1 {
		t.Errorf("%d blobs were collected, want one", n)
	}
}

// A fork has the blobs of its prefix, whatever becomes of its origin, and its replaced output may be of any size.
func TestBlob_ForkHasItsBlobs(t *testing.T) {
	b := setup(t)
	kinds := blobKinds()
	pgexec.AddKind(kinds, "chain", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		one, two := n.Spawn("make", 100_000, &pgexec.SpawnOpts{ID: "one"}), n.Spawn("make", 200_000, &pgexec.SpawnOpts{ID: "two"})
		n.Spawn("sizes", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{one, two}})
		return nil, nil
	}, nil)
	r := b.replica(kinds)
	id := b.start("chain", nil)
	b.succeed(id)
	r.drain()
	seq := query[int64](b, `select max(seq) from pgexec.nodes where run_id = $1 and kind = 'make'`, id)
	fork, err := b.client.Fork(b.ctx, id, &pgexec.ForkOpts{AtSeq: pgexec.Seq(seq), ReplaceNode: "two", ReplaceOutput: text(3 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(b.ctx, `delete from pgexec.runs where run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if n := b.collected(); n != 0 {
		t.Errorf("%d blobs of the prefix were collected", n)
	}
	b.replica(kinds)
	if run, want := b.succeed(fork), fmt.Sprintf("[100000,%d]", 3<<20); string(run.Result) != want {
		t.Errorf("the outputs have %s bytes, want %s", run.Result, want)
	}
	if n := b.inRecords(fork); n > 4000 {
		t.Errorf("the log has %d bytes", n)
	}
	// What was replaced is still in its record, in front of what counts.
	if n := b.collected(); n != 0 {
		t.Errorf("%d blobs that the fork's log has were collected", n)
	}
}

// Runs whose payloads are small have nil to do with blobs.
func TestBlob_SmallPayloadsMakeNone(t *testing.T) {
	b := setup(t)
	b.replica(blobKinds())
	b.succeed(b.start("make", 32<<10))
	if n := query[int](b, `select (select count(*) from pgexec.blobs) + (select count(*) from pgexec.blob_refs)`); n != 0 {
		t.Errorf("%d rows about blobs", n)
	}
}

// A list of runs is as long as it is, not as long as their inputs are.
func TestBlob_ListLeavesOutInputsThatAreNotSmall(t *testing.T) {
	b := setup(t)
	small, large := b.start("x", text(1000)), b.start("x", text(100_000))
	runs, err := b.client.List(b.ctx, nil)
	if err != nil || len(runs) != 2 || runs[0].ID != large || runs[1].ID != small {
		t.Fatal(runs, err)
	}
	if runs[0].Input != nil || string(runs[1].Input) != string(text(1000)) {
		t.Errorf("inputs of %d and %d bytes", len(runs[0].Input), len(runs[1].Input))
	}
	run, err := b.client.Get(b.ctx, large)
	if err != nil || string(run.Input) != string(text(100_000)) {
		t.Errorf("the run itself: %d bytes, %v", len(run.Input), err)
	}
}

// A person's decision may have arguments of any size: an approval ends with a
// payload that is read by itself.
func TestBlob_LargeInApprovals(t *testing.T) {
	b := setup(t)
	b.replica(spawning(), briefly)
	id := b.start("root", map[string]any{"Kind": pgexec.KindApproval, "Input": pgexec.ApprovalInput{About: "x", Timeout: "1h"}})
	b.eventually(`select count(*) = 1 from pgexec.runs where run_id = $1 and status = 'parked'`, id)
	if err := b.client.Signal(b.ctx, id, "approval", map[string]any{"approve": true, "args": text(200_000)}, &pgexec.SignalOpts{NodeID: "it"}); err != nil {
		t.Fatal(err)
	}
	if run := b.succeed(id); len(run.Result) != 200_000+len(`{"args":}`) {
		t.Errorf("the output has %d bytes: %.100s", len(run.Result), run.Result)
	}
	b.checkLog(id)
	other := b.start("root", map[string]any{"Kind": pgexec.KindApproval, "Input": pgexec.ApprovalInput{About: "x"}})
	if err := b.client.Signal(b.ctx, other, "approval", map[string]any{"approve": false, "more": text(200_000)}, &pgexec.SignalOpts{NodeID: "it"}); err != nil {
		t.Fatal(err)
	}
	if run := b.wait(other); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "want {") {
		t.Errorf("run is %s: %.300s", run.Status, run.Error)
	}
}
