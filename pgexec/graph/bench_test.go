package graph

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/target"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// shape is an endless run of one form: records come in the order of execution.
type shape struct {
	name string
	// next returns the records of step i, each the end of a node.
	next func(i int) []*pb.Record
}

func benchNode(id, parent string, spawned ...*pb.NodeSpec) *pb.Record {
	n := &pb.Node{
		Id: id, Kind: "step", Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Output: jsonPayload(`{"ok":true}`), Attempt: 1,
		Spawned: spawned, Usage: &pb.Usage{InputTokens: 1},
	}
	if parent != "" {
		n.Parents = []string{parent}
	}
	return &pb.Record{Body: &pb.Record_Node{Node: n}}
}

// chain: every node spawns the next.
func chain() shape {
	return shape{"chain", func(i int) []*pb.Record {
		id, parent, next := fmt.Sprint("step-", i), fmt.Sprint("step-", i-1), fmt.Sprint("step-", i+1)
		switch i {
		case 0:
			id, parent = "root", ""
		case 1:
			parent = "root"
		}
		return []*pb.Record{benchNode(id, parent, spec(NodeID(next), id))}
	}}
}

// fanOut: a turn spawns ten tools and the turn that joins them, again and again.
func fanOut() shape {
	return shape{"fan-out and join", func(i int) []*pb.Record {
		turn, next := fmt.Sprint("turn-", i), fmt.Sprint("turn-", i+1)
		if i == 0 {
			turn = "root"
		}
		join := specDone(NodeID(next))
		out := []*pb.Record{benchNode(turn, "", join)}
		if i > 0 {
			for k := range 10 {
				out[0].GetNode().Parents = append(out[0].GetNode().Parents, fmt.Sprint("tool-", 10*(i-1)+k))
			}
		}
		for k := range 10 {
			tool := fmt.Sprint("tool-", 10*i+k)
			join.Parents = append(join.Parents, tool)
			out[0].GetNode().Spawned = append(out[0].GetNode().Spawned, spec(NodeID(tool), turn))
			out = append(out, benchNode(tool, turn))
		}
		return out
	}}
}

// hot is a graph of a shape that keeps growing.
type hot struct {
	g     *Graph
	shape shape
	steps int
}

func newHot(s shape) *hot {
	h := &hot{g: New("step", jsonPayload(`{}`)), shape: s}
	if _, err := h.g.Apply(1, claim(0)); err != nil {
		panic(err)
	}
	return h
}

// prepare makes the records that end the next n nodes or a few more.
func (h *hot) prepare(n int) []*pb.Record {
	var out []*pb.Record
	for len(out) < n {
		out = append(out, h.shape.next(h.steps)...)
		h.steps++
	}
	return out
}

// schedule does what an executor does for each node that ends.
func (h *hot) schedule(recs []*pb.Record) (ready int) {
	for _, rec := range recs {
		if err := h.g.Check(rec.GetNode()); err != nil {
			panic(err)
		}
		nodes, err := h.g.Apply(h.g.head+1, rec)
		if err != nil {
			panic(err)
		}
		ready += len(nodes)
		if h.g.Failure() != nil || h.g.Done() {
			panic("the run should go on")
		}
	}
	return ready
}

// measure returns what one node cost in each of several windows of nodes, on a
// graph that has between size and 1.1 size nodes, in ascending order.
func measure(s shape, size, windows int) []time.Duration {
	var costs []time.Duration
	h := newHot(s)
	for len(costs) < windows {
		if h.g.Len() > size+size/10 {
			h = newHot(s)
		}
		if h.g.Len() < size {
			h.schedule(h.prepare(size - h.g.Len()))
			runtime.GC()
		}
		recs := h.prepare(max(size/100, 10))
		begin := time.Now()
		h.schedule(recs)
		costs = append(costs, time.Since(begin)/time.Duration(len(recs)))
	}
	slices.Sort(costs)
	return costs
}

// C31: a node on a graph of 100,000 nodes costs what it costs on one of 100.
// Reports the median of many windows for each size, and ratios.
func BenchmarkSchedule(b *testing.B) {
	sizes := []int{100, 10_000, 100_000}
	for _, s := range []shape{chain(), fanOut()} {
		b.Run(s.name, func(b *testing.B) {
			costs := make([][]time.Duration, len(sizes))
			for b.Loop() {
				for i, size := range sizes {
					costs[i] = append(costs[i], measure(s, size, 50)...)
				}
			}
			median := make([]float64, len(sizes))
			for i, size := range sizes {
				slices.Sort(costs[i])
				median[i] = float64(costs[i][len(costs[i])/2])
				b.ReportMetric(median[i], fmt.Sprintf("ns/node@%d", size))
				b.ReportMetric(median[i]/median[0], fmt.Sprintf("ratio@%d", size))
				target.AtMost(b, fmt.Sprintf("a node at %d", size), time.Duration(median[i]), 5*time.Microsecond)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkReplay is rehydration without the decoding: 5,000 records.
func BenchmarkReplay(b *testing.B) {
	for _, s := range []shape{chain(), fanOut()} {
		b.Run(s.name, func(b *testing.B) {
			recs := newHot(s).prepare(5000)
			b.ReportAllocs()
			for b.Loop() {
				h := newHot(s)
				for _, rec := range recs {
					if _, err := h.g.Apply(h.g.head+1, rec); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(recs)), "ns/record")
		})
	}
}

// C31, as a test: were anything in the cost proportional to the graph, a
// hundred times the size would show. The bound leaves room for caches and for
// machines under load; BenchmarkSchedule has the figures.
func TestSchedule_CostDoesNotGrowWithTheGraph(t *testing.T) {
	for _, s := range []shape{chain(), fanOut()} {
		small, large := measure(s, 200, 50)[0], measure(s, 20_000, 50)[0]
		t.Logf("%s: %v a node at 200 nodes, %v at 20,000", s.name, small, large)
		if large > 5*small {
			t.Errorf("%s: %v a node at 200 nodes, %v at 20,000", s.name, small, large)
		}
	}
}
