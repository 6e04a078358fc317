package executor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/usage"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// offline is a hot run whose records commit at once, so that a node costs what the executor does.
type offline struct {
	tb     testing.TB
	r      *Run
	seq    runlog.Seq
	length int         // nodes to be run
	ended  []time.Time // when each of them was
}

// newOffline returns a run whose root spawns so many nodes of kind beside, and a chain of links without end, of all of which
// length are to be run.
func newOffline(tb testing.TB, length int, beside string, many int) *offline {
	tb.Helper()
	cfg, err := pgx.ParseConfig("host=127.0.0.1")
	if err != nil {
		tb.Fatal(err)
	}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("offline") }
	log := slog.New(slog.DiscardHandler)
	w := runlog.NewWriter(runlog.WriterConfig{Conn: cfg, Logger: log})
	tb.Cleanup(w.Abort)
	link := func(_ context.Context, call *Call) (*Result, error) {
		var spawns []Spawn
		if call.Node.ID == graph.RootID {
			for range many {
				spawns = append(spawns, Spawn{Kind: beside, Input: &pb.Payload{Value: &pb.Payload_Json{Json: []byte(`{"name": "s"}`)}}})
			}
		}
		return &Result{Spawns: append(spawns, Spawn{Kind: "link"})}, nil
	}
	x := New(Config{
		Writer:   w,
		Throttle: throttle.New(throttle.Config{}),
		Usage:    usage.New(nil, 1, log),
		Kinds: map[string]*Kind{
			"link": {Name: "link", HandlerFunc: link},
			"leaf": {Name: "leaf", HandlerFunc: func(context.Context, *Call) (*Result, error) { return &Result{}, nil }},
		},
		Tasks:             wake.NewTasks(nil, log),
		MaxParallelPerRun: 10, MaxParallel: 10, InlineLimit: 32 << 10,
		NowFunc: time.Now, Logger: log,
	})
	r := x.Open(ownership.Claimed{RunID: runlog.RunID{1}, Epoch: 1, Head: 1, Kind: "link"})
	r.contexts = newContexts(tb.Context())
	o := &offline{tb: tb, r: r, length: length}
	o.seq++
	if _, err := r.g.Apply(int64(o.seq), &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 1, Epoch: 1}}}); err != nil {
		tb.Fatal(err)
	}
	r.enqueue(r.g.Frontier())
	return o
}

// run does what the owner goroutine's loop does.
func (o *offline) run() {
	r := o.r
	for len(o.ended) < o.length {
		limit := r.launch()
		if r.settled() {
			if end, ok := r.verdict(limit); ok {
				o.tb.Fatalf("ending %d after %d nodes", end, len(o.ended))
			}
		}
		<-r.mail.ready
		for _, e := range r.mail.take() {
			r.handle(e)
			if e.attempt == nil {
				continue
			}
			o.seq++
			r.handle(event{appended: &pb.Record{Body: &pb.Record_Node{Node: e.attempt.record}}, seq: o.seq})
			if r.flight.records != 0 {
				o.tb.Fatal("a node left more than its record")
			}
			o.ended = append(o.ended, time.Now())
		}
	}
	r.cancelHandlers(ErrRunEnded)
}

// cost is that of a node: the best of the windows between two of them, each of 100 nodes.
func (o *offline) cost(from, to int) time.Duration {
	const window = 100
	best := time.Duration(1<<63 - 1)
	for i := from; i+window <= to; i += window {
		best = min(best, o.ended[i+window-1].Sub(o.ended[i])/window)
	}
	return best
}

// costs of a node at the beginning and at the end of runs in which the length of the log, the nodes that are ready and
// those that wait grow.
func costs(tb testing.TB) map[string][2]time.Duration {
	const few, many, length = 10, 15_000, 100_000
	out := make(map[string][2]time.Duration)
	o := newOffline(tb, length, "link", 0)
	o.run()
	out["behind many nodes"] = [2]time.Duration{o.cost(100, 1100), o.cost(length-1000, length)}
	for name, kind := range map[string]string{"beside many that are ready": "leaf", "beside many that wait": KindSignal} {
		short, long := newOffline(tb, 1100, kind, few), newOffline(tb, 1100, kind, many)
		short.run()
		long.run()
		out[name] = [2]time.Duration{short.cost(100, 1100), long.cost(100, 1100)}
	}
	return out
}

// C31: what the executor does for a node does not grow with the run. Were anything in it proportional to its nodes, it would
// be many times as much; the bound leaves room for caches and for machines under load. BenchmarkRun_Length has the figures.
func TestRun_ANodeCostsTheSameInARunOfAnySize_C31(t *testing.T) {
	for name, c := range costs(t) {
		t.Logf("%s: %v and %v a node", name, c[0], c[1])
		if c[1] > 5*c[0] {
			t.Errorf("%s: %v a node, %v without", name, c[1], c[0])
		}
	}
}

func BenchmarkRun_Length(b *testing.B) {
	for range b.N {
		for name, c := range costs(b) {
			b.ReportMetric(float64(c[1])/float64(c[0]), "ratio-"+strings.ReplaceAll(name, " ", "-"))
		}
	}
}
