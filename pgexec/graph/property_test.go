package graph

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

const rootKind = "start"

var kinds = []string{"turn", "tool", "a-1"}

// program is a run whose handlers return whatever rapid draws. Nodes end in any
// order, several records are on their way to the log at a time, and what is
// done is as often as not seen by nodes that were spawned much later.
type program struct {
	t      *rapid.T
	g      *Graph
	log    []*pb.Record
	queue  []*pb.Record    // checked, not yet applied
	flight map[NodeID]bool // nodes in queue
	known  []NodeID        // in the order they became known
	most   int             // nodes to spawn at most
	named  int             // ids chosen by hand so far
	// retries counts how often the program was ended and retried.
	retries int
}

func newProgram(t *rapid.T) *program {
	p := &program{
		t: t, g: New(rootKind, jsonPayload(`{}`)), flight: map[NodeID]bool{}, known: []NodeID{RootID},
		most: rapid.SampledFrom([]int{40, 20, 10, 5, 60}).Draw(t, "most"),
	}
	p.apply(claim(0))
	return p
}

// run executes the program to its end and returns its log.
func (p *program) run() []*pb.Record {
	for {
		free := slices.DeleteFunc(p.g.Frontier(), func(n *Node) bool { return p.flight[n.ID] })
		switch {
		case len(p.queue) > 0 && (len(free) == 0 || rapid.Bool().Draw(p.t, "commit")):
			p.commit()
		case len(free) == 0 && p.retry():
		case len(free) == 0:
			return p.log
		case rapid.IntRange(0, 5).Draw(p.t, "noise") == 0:
			p.noise(free)
		default:
			p.finish(rapid.SampledFrom(free).Draw(p.t, "node"))
		}
	}
}

// retry ends a program as failed, now and then, and retries some of the nodes
// that ended it. A failed node that spawned successors is left alone: it would spawn them twice.
func (p *program) retry() bool {
	var again []string
	for _, n := range p.g.Failures() {
		if len(p.log[n.Seq-1].GetNode().GetSpawned()) == 0 && rapid.Bool().Draw(p.t, "again") {
			again = append(again, string(n.ID))
		}
	}
	if len(again) == 0 || p.retries == 3 {
		return false
	}
	p.retries++
	end := finished()
	end.GetFinished().Status = pb.RunStatus_RUN_STATUS_FAILED
	p.apply(end)
	p.apply(claim(0))
	retried := control(pb.ControlKind_CONTROL_KIND_RETRIED)
	retried.GetControl().NodeIds = again
	p.apply(retried)
	return true
}

func (p *program) commit() {
	rec := p.queue[0]
	p.queue = p.queue[1:]
	delete(p.flight, NodeID(rec.GetNode().GetId()))
	p.apply(rec)
}

func (p *program) apply(rec *pb.Record) {
	seq := p.g.Head() + 1
	if _, err := p.g.Apply(seq, rec); err != nil {
		p.t.Fatalf("Apply: %v", err)
	}
	p.log = append(p.log, rec)
	for _, s := range rec.GetNode().GetSpawned() {
		p.known = append(p.known, NodeID(s.GetId()))
	}
}

// noise applies a record that ends no node.
func (p *program) noise(free []*Node) {
	n := rapid.SampledFrom(free).Draw(p.t, "noisy")
	switch rapid.IntRange(0, 3).Draw(p.t, "what") {
	case 0:
		p.apply(attemptFailed(n.ID, n.Attempts+1))
	case 1:
		p.apply(claim(rapid.Int32Range(0, 1).Draw(p.t, "dead")))
	case 2:
		p.apply(&pb.Record{Body: &pb.Record_Started{Started: &pb.Started{NodeId: string(n.ID), Attempt: n.Attempts + 1}}})
	default:
		p.apply(control(rapid.SampledFrom([]pb.ControlKind{
			pb.ControlKind_CONTROL_KIND_PAUSED, pb.ControlKind_CONTROL_KIND_RESUMED,
		}).Draw(p.t, "control")))
	}
}

// finish ends a node with what rapid draws.
func (p *program) finish(n *Node) {
	status := rapid.SampledFrom([]pb.NodeStatus{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4}).Draw(p.t, "status")
	rec := nodeRecord(n, status, p.specs(n)...)
	rec.GetNode().Final = rapid.IntRange(0, 15).Draw(p.t, "final") == 0
	rec.GetNode().Usage = &pb.Usage{
		InputTokens: rapid.Int64Range(0, 9).Draw(p.t, "in"), OutputTokens: rapid.Int64Range(0, 9).Draw(p.t, "out"),
		CostNanoUsd: rapid.Int64Range(0, 9).Draw(p.t, "cost"),
	}
	if rapid.IntRange(0, 9).Draw(p.t, "spoil") == 0 {
		p.refuse(n, status)
	}
	if err := p.g.Check(rec.GetNode()); err != nil {
		p.t.Fatalf("Check: %v", err)
	}
	p.queue = append(p.queue, rec)
	p.flight[n.ID] = true
}

// specs draws nodes to spawn. Parents among them follow a random order, so
// that a parent may come later in the list than its child.
func (p *program) specs(by *Node) []*pb.NodeSpec {
	count := rapid.SampledFrom([]int{2, 1, 3, 0, 4, 0, 12}).Draw(p.t, "count")
	if len(p.queue) == 0 && p.g.frontier.len == 1 {
		count = max(count, 1) // else the program ends here
	}
	count = min(count, p.most)
	p.most -= count
	specs := make([]*pb.NodeSpec, count)
	candidates := slices.Clone(p.known)
	for i := range specs {
		kind := rapid.SampledFrom(kinds).Draw(p.t, "kind")
		specs[i] = spec(p.id(kind))
		specs[i].Kind = kind
		specs[i].Join = pb.Join(rapid.IntRange(0, 1).Draw(p.t, "join"))
		specs[i].InputRefs = rapid.Bool().Draw(p.t, "refs")
		parents := rapid.SliceOfNDistinct(rapid.SampledFrom(candidates), 0, min(4, len(candidates)), rapid.ID).Draw(p.t, "parents")
		if !slices.Contains(parents, by.ID) && (len(parents) == 0 || rapid.Bool().Draw(p.t, "own")) {
			parents = append(parents, by.ID)
		}
		for _, id := range parents {
			specs[i].Parents = append(specs[i].Parents, string(id))
		}
		candidates = append(candidates, NodeID(specs[i].GetId()))
	}
	return rapid.Permutation(specs).Draw(p.t, "order")
}

func (p *program) id(kind string) NodeID {
	if rapid.Bool().Draw(p.t, "automatic") {
		return p.g.NewID(kind)
	}
	p.named++
	// In the way of NewID at times, never equal to one that it has given out.
	return NodeID(fmt.Sprintf("%s-%d", kind, 1000*p.named))
}

// refuse has Check refuse a record, which must change nothing.
func (p *program) refuse(n *Node, status pb.NodeStatus) {
	bad := []*pb.NodeSpec{
		spec("bad", string(n.ID), "nobody"),
		spec("bad", "bad"),
		spec("root", string(n.ID)),
		spec("", string(n.ID)),
		spec("bad"),
	}
	spoiled := rapid.SampledFrom(bad).Draw(p.t, "bad")
	before := observe(p.g)
	err := p.g.Check(nodeRecord(n, status, spec("good", string(n.ID)), spoiled).GetNode())
	var fault *SpecError
	if !errors.As(err, &fault) {
		p.t.Fatalf("Check accepted %v: %v", spoiled, err)
	}
	if p.g.reserved["good"] != nil || observe(p.g) != before {
		p.t.Fatal("a refused record left something behind")
	}
}

// replay builds a graph from encoded records.
func replay(t *rapid.T, log []*pb.Record) *Graph {
	g := New(rootKind, jsonPayload(`{}`))
	for i, rec := range log {
		raw, err := proto.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		var again pb.Record
		if err := proto.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Apply(int64(i+1), &again); err != nil {
			t.Fatalf("Apply: %v", err)
		}
	}
	return g
}

// Whatever the order in which nodes end, replaying the log gives the graph that
// was executed, the ids it will give out next included.
func TestProperty_ReplayEqualsLiveExecution(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t)
		log := p.run()
		if rapid.Bool().Draw(t, "finished") {
			p.apply(finished())
			log = p.log
		}
		again := replay(t, log)
		if live, replayed := observe(p.g), observe(again); live != replayed {
			t.Fatalf("live\n%s\nreplayed\n%s", live, replayed)
		}
		if !p.g.Done() {
			t.Fatalf("the frontier is empty and yet nodes wait:\n%s", observe(p.g))
		}
		for range 3 {
			for _, kind := range kinds {
				live, replayed := p.g.NewID(kind), again.NewID(kind)
				if live != replayed || p.g.Node(live) != nil {
					t.Fatalf("NewID(%q): live %s, replayed %s", kind, live, replayed)
				}
			}
		}
	})
}

// Every prefix of a log is a valid state, and the naive model agrees with it
// (G2: there is nothing to repair, wherever a log ends).
func TestProperty_EveryPrefixEqualsTheNaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t)
		log := p.run()
		g := New(rootKind, jsonPayload(`{}`))
		readyAt := map[NodeID]int64{RootID: 0}
		for i, rec := range log {
			ready, err := g.Apply(int64(i+1), rec)
			if err != nil {
				t.Fatalf("Apply: %v", err)
			}
			for _, n := range ready {
				readyAt[n.ID] = g.Head()
			}
			compare(t, g, newModel(rootKind, log[:i+1]))
			checkOrder(t, g, readyAt)
		}
	})
}

func compare(t *rapid.T, g *Graph, m *model) {
	statuses := m.statuses()
	if g.Len() != len(statuses) {
		t.Fatalf("Len = %d, want %d", g.Len(), len(statuses))
	}
	var ready []NodeID
	done := true
	for id, want := range statuses {
		if got := g.Node(NodeID(id)).Status(); got != want {
			t.Fatalf("seq %d: node %s is %s, want %s", g.Head(), id, got, want)
		}
		if want == StatusReady {
			ready = append(ready, NodeID(id))
		}
		done = done && want.Done()
	}
	slices.Sort(ready)
	if got := slices.Sorted(slices.Values(ids(g.Frontier()))); !slices.Equal(got, ready) {
		t.Fatalf("seq %d: frontier %v, want %v", g.Head(), got, ready)
	}
	if g.Done() != done {
		t.Fatalf("seq %d: Done = %v", g.Head(), g.Done())
	}
	if got, want := string(idOf(g.Failure())), m.failure(statuses); got != want {
		t.Fatalf("seq %d: Failure = %q, want %q", g.Head(), got, want)
	}
	if got, want := string(idOf(g.Result())), m.result(); got != want {
		t.Fatalf("seq %d: Result = %q, want %q", g.Head(), got, want)
	}
	if got, want := g.Usage(), m.usage(); got != want {
		t.Fatalf("seq %d: Usage = %+v, want %+v", g.Head(), got, want)
	}
}

// checkOrder: the frontier is sorted by when its nodes became ready.
func checkOrder(t *rapid.T, g *Graph, readyAt map[NodeID]int64) {
	if !slices.IsSortedFunc(g.Frontier(), func(a, b *Node) int { return int(readyAt[a.ID] - readyAt[b.ID]) }) {
		t.Fatalf("seq %d: frontier %v became ready at %v", g.Head(), ids(g.Frontier()), readyAt)
	}
}

// A log that has been tampered with is refused or is a valid log; a refused
// record leaves the graph as it was.
func TestProperty_TamperedLogNeverHarms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := slices.Clone(newProgram(t).run())
		i := rapid.IntRange(0, len(log)-1).Draw(t, "i")
		j := rapid.IntRange(0, len(log)-1).Draw(t, "j")
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			log = slices.Delete(log, i, i+1)
		case 1:
			log = slices.Insert(log, j, log[i])
		default:
			log[i], log[j] = log[j], log[i]
		}
		g := New(rootKind, jsonPayload(`{}`))
		applied := log[:0:0]
		for _, rec := range log {
			before := observe(g)
			if _, err := g.Apply(g.Head()+1, rec); err == nil {
				applied = append(applied, rec)
			} else if after := observe(g); after != before {
				t.Fatalf("%v: the graph changed\nfrom %s\n  to %s", err, before, after)
			}
		}
		compare(t, g, newModel(rootKind, applied))
	})
}

// Programs must reach the states that the properties are about.
func TestProgram_ReachesEveryStatus(t *testing.T) {
	t.Parallel()
	seen := map[Status]bool{}
	forward := false
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t)
		for _, rec := range p.run() {
			at := map[string]int{}
			for i, s := range rec.GetNode().GetSpawned() {
				at[s.GetId()] = i
			}
			for i, s := range rec.GetNode().GetSpawned() {
				for _, parent := range s.GetParents() {
					forward = forward || at[parent] > i
				}
			}
		}
		for n := range maps.Values(p.g.nodes) {
			seen[n.Status()] = true
		}
	})
	for s := StatusSucceeded; s <= StatusSkipped; s++ {
		if !seen[s] {
			t.Errorf("no node was ever %s", s)
		}
	}
	if !forward {
		t.Error("no parent ever came later than its child")
	}
}
