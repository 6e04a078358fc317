package pgexec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// part returns JSON text of n bytes that no other i has.
func part(i, n int) json.RawMessage {
	head := fmt.Sprintf(`"%d `, i)
	return json.RawMessage(head + strings.Repeat("x", n-len(head)-1) + `"`)
}

// fanOut is the input of "fan": so many nodes of that kind, with inputs of so many bytes each, and one behind them that waits for all.
type fanOut struct {
	Nodes, Bytes int
	Kind         string
	Gate         bool
	Tx           bool
}

// fanKinds: "fan" spawns, behind a "gate" if it is asked to.
func fanKinds(open <-chan struct{}) *pgexec.Kinds {
	kinds := blobKinds()
	pgexec.AddKind(kinds, "fan", func(ctx context.Context, n *pgexec.Node, in fanOut) (string, error) {
		if in.Tx {
			tx, err := n.Tx(ctx)
			if err != nil {
				return "", err
			}
			if _, err := tx.Exec(ctx, `insert into effects values ($1)`, n.Attempt()); err != nil {
				return "", err
			}
		}
		var after, all []pgexec.NodeRef
		if in.Gate {
			after = append(after, n.Spawn("gate", nil, nil))
		}
		for i := range in.Nodes {
			all = append(all, n.Spawn(in.Kind, part(i, in.Bytes), &pgexec.SpawnOpts{After: after}))
		}
		n.Spawn("sum", nil, &pgexec.SpawnOpts{After: all, ID: "sum"})
		return "done", nil
	}, nil)
	pgexec.AddKind(kinds, "gate", func(ctx context.Context, _ *pgexec.Node, _ none) (none, error) {
		select {
		case <-open:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, nil)
	pgexec.AddKind(kinds, "sum", func(_ context.Context, n *pgexec.Node, _ none) (sum int, err error) {
		for _, p := range n.Parents() {
			var size int
			if err := p.Output(&size); err != nil {
				return 0, err
			}
			sum += size
		}
		return sum, nil
	}, nil)
	return kinds
}

// fits checks that the root's record is as large as a record may be, with some of its payloads in blobs, as psql shows.
func (b *bundle) fits(id pgexec.RunID, nodes, size int) {
	b.t.Helper()
	const root = ` from pgexec.run_log l where l.run_id = $1 and pgexec.decode(l.record) #>> '{node,id}' = 'root'`
	if n := query[int](b, `select length(l.record)`+root, id); n > 1<<20 || n < 1<<20-2*size {
		b.t.Errorf("the record has %d bytes", n)
	}
	inBlobs := query[int](b, `select (select count(*) from jsonb_array_elements(pgexec.decode(l.record) #> '{node,spawned}') s where s -> 'input' ? '$blob')`+root, id)
	stored := query[int](b, `select count(*) from pgexec.blobs where stored and size = $1`, size)
	if want := nodes - (1<<20)/size; inBlobs != stored || inBlobs < want-1 || inBlobs > want+5 {
		b.t.Errorf("%d inputs are in blobs, %d blobs are stored, about %d would do", inBlobs, stored, want)
	}
}

// Payloads that are small each and too much for one record together: as many as it takes go to blobs by themselves. The run goes
// on here and, after a takeover, elsewhere; the collector leaves them alone (C22, C42).
func TestBlob_RecordOverItsLimitPutsPayloadsElsewhere_C22(t *testing.T) {
	const nodes, size = 100, 20 << 10
	for name, store := range map[string]string{"db": "", "file": "file://" + t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			open := make(chan struct{})
			in := func(c *pgexec.Config) { c.BlobStore, c.Grace = store, time.Millisecond }
			first := b.replica(fanKinds(open), in)
			id := b.start("fan", fanOut{Nodes: nodes, Bytes: size, Kind: "size", Gate: true})
			b.eventually(`select count(*) = 1 from pgexec.nodes where run_id = $1`, id)
			b.fits(id, nodes, size)
			if n := b.collected(); n != 0 {
				t.Errorf("%d blobs that a record refers to were collected", n)
			}
			first.drain()
			close(open)
			b.replica(fanKinds(open), in)
			if run := b.succeed(id); string(run.Result) != fmt.Sprint(nodes*size) {
				t.Errorf("the inputs had %s bytes", run.Result)
			}
			b.checkLog(id)
			seq := query[int64](b, `select min(seq) from pgexec.nodes where run_id = $1`, id)
			fork, err := b.client.Fork(b.ctx, id, &pgexec.ForkOpts{AtSeq: pgexec.Seq(seq)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.pool.Exec(b.ctx, `delete from pgexec.runs where run_id = $1`, id); err != nil {
				t.Fatal(err)
			}
			if n := b.collected(); n != 0 {
				t.Errorf("%d blobs that a fork's record refers to were collected", n)
			}
			b.succeed(fork)
		})
	}
}

// The effect in the transaction of such a record commits with it, once.
func TestBlob_RecordOverItsLimitInATransaction(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create table effects (attempt int)`); err != nil {
		t.Fatal(err)
	}
	b.replica(fanKinds(nil))
	id := b.start("fan", fanOut{Nodes: 60, Bytes: 30 << 10, Kind: "size", Tx: true})
	b.succeed(id)
	b.fits(id, 60, 30<<10)
	if n := query[int](b, `select count(*) from effects where attempt = 1`); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Programs outside get such inputs as they do others.
func TestBlob_RecordOverItsLimitSpawnsTasks(t *testing.T) {
	b := setup(t)
	const nodes, size = 60, 30 << 10
	if _, err := b.pool.Exec(b.ctx, `select pgexec.declare_kind('outside')`); err != nil {
		t.Fatal(err)
	}
	b.replica(fanKinds(nil), briefly)
	id := b.start("fan", fanOut{Nodes: nodes, Bytes: size, Kind: "outside"})
	b.eventually(`select count(*) = $2 from pgexec.tasks where run_id = $1`, id, nodes)
	b.fits(id, nodes, size)
	const do = `select count(*) from pgexec.take('outside', 'w', max_tasks => 1000) t where pgexec.complete(t.task_id, 'w', to_json(length(t.input::text)))`
	if n := query[int](b, do); n != nodes {
		t.Errorf("%d tasks were done", n)
	}
	if run := b.succeed(id); string(run.Result) != fmt.Sprint(nodes*size) {
		t.Errorf("the inputs had %s bytes", run.Result)
	}
}

// A value that stands for a file is kept with the payload that has it, also when that is put into a blob for the record's sake.
func TestBlob_RecordOverItsLimitKeepsFilesOfItsPayloads(t *testing.T) {
	b := setup(t)
	kinds := blobKinds()
	type input struct {
		File pgexec.BlobRef
		Rest json.RawMessage
	}
	pgexec.AddKind(kinds, "files", func(ctx context.Context, n *pgexec.Node, _ none) (none, error) {
		for i := range 50 {
			file, err := n.PutBlob(ctx, "text/plain", strings.NewReader(fmt.Sprint("file ", i)))
			if err != nil {
				return nil, err
			}
			n.Spawn("file", input{file, part(i, 30_000)}, nil)
		}
		return nil, nil
	}, nil)
	pgexec.AddKind(kinds, "file", func(ctx context.Context, n *pgexec.Node, in input) (none, error) {
		r, err := n.OpenBlob(ctx, in.File)
		if err != nil {
			return nil, err
		}
		return nil, r.Close()
	}, nil)
	b.replica(kinds)
	id := b.start("files", nil)
	b.succeed(id)
	if n := query[int](b, `select count(*) from pgexec.blobs where size < 100`); n != 50 {
		t.Errorf("%d files are stored", n)
	}
	for range 2 {
		if n := b.collected(); n != 0 {
			t.Errorf("%d blobs that a record or its payloads refer to were collected", n)
		}
	}
}

// A wait with very many parents ends with whatever payload there is: with that in a blob its record fits.
func TestBlob_RecordOverItsLimitEndsAWait(t *testing.T) {
	b := setup(t)
	kinds := blobKinds()
	leaf := func(i int) pgexec.NodeID { return pgexec.NodeID(fmt.Sprintf("%0200d", i)) }
	const leaves = 3000
	pgexec.AddKind(kinds, "many", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		for i := range leaves {
			n.Spawn("leaf", nil, &pgexec.SpawnOpts{ID: leaf(i)})
		}
		n.Spawn("then", nil, nil)
		return nil, nil
	}, nil)
	pgexec.AddKind(kinds, "leaf", func(context.Context, *pgexec.Node, none) (none, error) { return nil, nil }, nil)
	pgexec.AddKind(kinds, "then", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		var after []pgexec.NodeRef
		for i := range leaves {
			after = append(after, pgexec.Ref(leaf(i)))
		}
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, &pgexec.SpawnOpts{After: after, ID: "wait"})
		return nil, nil
	}, nil)
	b.replica(kinds, func(c *pgexec.Config) { c.InlineLimit = 512 << 10 })
	id := b.start("many", nil)
	if err := b.client.Signal(b.ctx, id, "go", text(500<<10), nil); err != nil {
		t.Fatal(err)
	}
	if run := b.succeed(id); len(run.Result) != 500<<10 {
		t.Errorf("the result has %d bytes", len(run.Result))
	}
	if n := query[int](b, `select count(*) from pgexec.blobs where stored`); n != 1 {
		t.Errorf("%d blobs", n)
	}
}
