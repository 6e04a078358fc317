package graph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// branched is a run in which a and b are ready, c waits, d has failed and e was skipped.
func branched(t *testing.T) *run {
	t.Helper()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("c", "a"), spec("d", "root"), spec("e", "d"))
	r.fail("d")
	return r
}

func TestCheck_FaultsNameTheNode(t *testing.T) {
	t.Parallel()
	withKind := func(s *pb.NodeSpec, kind string) *pb.NodeSpec {
		s.Kind = kind
		return s
	}
	withJoin := func(s *pb.NodeSpec, join pb.Join) *pb.NodeSpec {
		s.Join = join
		return s
	}
	long := strings.Repeat("x", 257)
	for _, tc := range []struct {
		name    string
		spawned []*pb.NodeSpec
		want    string
	}{
		{"empty id", []*pb.NodeSpec{spec("x", "a"), spec("", "a")}, `node "a": spawned node 2 of kind "step": id is empty`},
		{"long id", []*pb.NodeSpec{spec(NodeID(long), "a")}, `node "` + long[:80] + `"… (257 bytes): id is 257 bytes long; at most 256 are allowed`},
		{"control character", []*pb.NodeSpec{spec("x\ny", "a")}, `node "x\ny": id contains '\n'`},
		{"separator", []*pb.NodeSpec{spec("x#y", "a")}, `node "x#y": id contains '#'`},
		{"not UTF-8", []*pb.NodeSpec{spec("x\xff", "a")}, `node "x\xff": id is not valid UTF-8`},
		{"empty kind", []*pb.NodeSpec{withKind(spec("x", "a"), "")}, `node "x": kind is empty`},
		{"long kind", []*pb.NodeSpec{withKind(spec("x", "a"), long)}, `node "x": kind is 257 bytes long; at most 128 are allowed`},
		{"kind with separator", []*pb.NodeSpec{withKind(spec("x", "a"), "k#")}, `node "x": kind contains '#'`},
		{"unknown join", []*pb.NodeSpec{withJoin(spec("x", "a"), 7)}, `node "x": join 7 is not known`},
		{"taken", []*pb.NodeSpec{spec("c", "a")}, `node "c": id is taken by another node of the run`},
		{"root", []*pb.NodeSpec{spec("root", "a")}, `node "root": id is taken by another node of the run`},
		{"twice", []*pb.NodeSpec{spec("x", "a"), spec("y", "x"), spec("x", "a")}, `node "x": id is used twice among the nodes that "a" spawns`},
		{
			"twice among many",
			[]*pb.NodeSpec{spec("0", "a"), spec("1", "a"), spec("2", "a"), spec("3", "a"), spec("4", "a"), spec("5", "a"), spec("6", "a"), spec("7", "a"), spec("3", "a")},
			`node "3": id is used twice among the nodes that "a" spawns`,
		},
		{"no parents", []*pb.NodeSpec{spec("x")}, `node "x": has no parents`},
		{"parent twice", []*pb.NodeSpec{spec("x", "a", "b", "a")}, `node "x": parent "a" is named twice`},
		{"parent twice among many", []*pb.NodeSpec{spec("x", "a", "b", "c", "d", "e", "root", "y", "z", "a"), spec("y", "a"), spec("z", "a")}, `node "x": parent "a" is named twice`},
		{"unknown parent", []*pb.NodeSpec{spec("x", "a", "nobody")}, `node "x": parent "nobody" does not exist`},
		{"own parent", []*pb.NodeSpec{spec("x", "a", "x")}, `node "x": is its own parent`},
		{"cycle", []*pb.NodeSpec{spec("w", "x"), spec("x", "a", "z"), spec("y", "x"), spec("z", "y")}, `node "x": its parents form a cycle: "x" after "z" after "y" after "x"`},
	} {
		r := branched(t)
		err := r.g.Check(nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, tc.spawned...).GetNode())
		var fault *SpecError
		if !errors.As(err, &fault) || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.name, err, tc.want)
		}
	}
}

func TestCheck_FaultsOfTheRecordItself(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, id string
		change   func(*pb.Node)
		want     string
	}{
		{"waiting", "c", nil, `node "c": cannot have run, it is waiting`},
		{"skipped", "e", nil, `node "e": cannot have run, it is skipped`},
		{"done", "d", nil, `node "d": already done at seq 3 (failed)`},
		{"unknown", "a", func(n *pb.Node) { n.Id = "x" }, `node "x": no such node`},
		{"kind", "a", func(n *pb.Node) { n.Kind = "x" }, `node "a": recorded as kind "x"; it is of kind "step"`},
		{"parents", "a", func(n *pb.Node) { n.Parents = []string{"b"} }, `node "a": recorded with other parents than it was spawned with`},
		{"no parents", "a", func(n *pb.Node) { n.Parents = nil }, `node "a": recorded with other parents than it was spawned with`},
		{"status", "a", func(n *pb.Node) { n.Status = 0 }, `node "a": status NODE_STATUS_UNSPECIFIED does not end a node`},
		{"usage", "a", func(n *pb.Node) { n.Usage = &pb.Usage{CostNanoUsd: -1} }, `node "a": usage is negative`},
		{"too many", "a", func(n *pb.Node) { n.Spawned = make([]*pb.NodeSpec, MaxSpawned+1) }, `node "a": spawns 100001 nodes; at most 100000 are allowed`},
	} {
		r := branched(t)
		rec := nodeRecord(r.g.Node(NodeID(tc.id)), pb.NodeStatus_NODE_STATUS_SUCCEEDED).GetNode()
		if tc.change != nil {
			tc.change(rec)
		}
		if err := r.g.Check(rec); err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.name, err, tc.want)
		}
	}
}

func TestCheck_AcceptsAnyMixOfParents(t *testing.T) {
	t.Parallel()
	r := branched(t)
	rec := nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED,
		spec("later", "x", "y"), spec("x", "a", "c", "root"), specDone("y", "d", "e", "b"))
	if err := r.g.Check(rec.GetNode()); err != nil {
		t.Fatal(err)
	}
	r.apply(rec)
	r.expect("x", StatusWaiting)
}

// Two records on their way to the log must not both use one id.
func TestCheck_ReservesIDsUntilTheRecordIsApplied(t *testing.T) {
	t.Parallel()
	r := branched(t)
	a := nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "a"))
	b := nodeRecord(r.g.Node("b"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "b"))
	if err := r.g.Check(a.GetNode()); err != nil {
		t.Fatal(err)
	}
	want := `node "x": id is taken by a node that "a" spawns`
	if err := r.g.Check(b.GetNode()); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	r.apply(a)
	want = `node "x": id is taken by another node of the run`
	if err := r.g.Check(b.GetNode()); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestCheck_AgainReplacesTheReservation(t *testing.T) {
	t.Parallel()
	r := branched(t)
	first := nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "a"), spec("y", "a"))
	again := nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "a"))
	other := nodeRecord(r.g.Node("b"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("y", "b"))
	for _, rec := range []*pb.Record{first, again, other} {
		if err := r.g.Check(rec.GetNode()); err != nil {
			t.Fatal(err)
		}
	}
	r.apply(nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_FAILED)) // what is recorded in the end may differ
	r.apply(other)
	if len(r.g.reserved) != 0 {
		t.Errorf("still reserved: %v", r.g.reserved)
	}
}

func TestCheck_FailureReservesNothing(t *testing.T) {
	t.Parallel()
	r := branched(t)
	bad := nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "a"), spec("y", "nobody"))
	if err := r.g.Check(bad.GetNode()); err == nil {
		t.Fatal("accepted")
	}
	good := nodeRecord(r.g.Node("b"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "b"), spec("y", "b"))
	if err := r.g.Check(good.GetNode()); err != nil {
		t.Fatal(err)
	}
}

func TestCheck_LongCycleIsFoundAndCutInTheMessage(t *testing.T) {
	t.Parallel()
	r := start(t)
	const n = 50_000
	var specs []*pb.NodeSpec
	for i := range n {
		specs = append(specs, spec(NodeID(fmt.Sprint("s", i)), fmt.Sprint("s", (i+1)%n)))
	}
	err := r.g.Check(nodeRecord(r.g.Node(RootID), pb.NodeStatus_NODE_STATUS_SUCCEEDED, specs...).GetNode())
	want := `node "s0": its parents form a cycle: "s0" after "s1" after "s2" after "s3" after "s4" after "s5" after "s6" after "s7" after … after "s0"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestApply_CorruptLogIsNamed(t *testing.T) {
	t.Parallel()
	record := func(id NodeID, spawned ...*pb.NodeSpec) func(*run) *pb.Record {
		return func(r *run) *pb.Record {
			n := r.g.Node(id)
			if n == nil {
				n = &Node{Spec: Spec{ID: id}}
			}
			return nodeRecord(n, pb.NodeStatus_NODE_STATUS_SUCCEEDED, spawned...)
		}
	}
	fixed := func(rec *pb.Record) func(*run) *pb.Record { return func(*run) *pb.Record { return rec } }
	for _, tc := range []struct {
		name string
		skip int64 // how far the seq is off
		rec  func(*run) *pb.Record
		want string
	}{
		{"gap", 1, fixed(claim(0)), "log corrupt at seq 5: found after seq 3; seqs must be contiguous from 1"},
		{"seq twice", -1, fixed(claim(0)), "log corrupt at seq 3: found after seq 3; seqs must be contiguous from 1"},
		{"unknown node", 0, record("x"), `log corrupt at seq 4: node "x": no such node`},
		{"done twice", 0, record("root"), `log corrupt at seq 4: node "root": already done at seq 2 (succeeded)`},
		{"not ready", 0, record("c"), `log corrupt at seq 4: node "c": cannot have run, it is waiting`},
		{"bad spec", 0, record("a", spec("x", "nobody")), `log corrupt at seq 4: node "x": parent "nobody" does not exist`},
		{"attempt of nobody", 0, fixed(attemptFailed("x", 1)), `log corrupt at seq 4: attempt failed record of node "x": no such node`},
		{"attempt of a done node", 0, fixed(attemptFailed("d", 1)), `log corrupt at seq 4: attempt failed record of node "d": already done at seq 3 (failed)`},
		{"attempt out of order", 0, fixed(attemptFailed("a", 0)), `log corrupt at seq 4: attempt failed record of node "a": attempt 0 follows attempt 0`},
		{
			"started while waiting", 0, fixed(&pb.Record{Body: &pb.Record_Started{Started: &pb.Started{NodeId: "c"}}}),
			`log corrupt at seq 4: started record of node "c": cannot have run, it is waiting`,
		},
		{"empty", 0, fixed(&pb.Record{}), "log corrupt at seq 4: a record of a kind that this build does not know"},
		{"nil", 0, fixed(nil), "log corrupt at seq 4: a record of a kind that this build does not know"},
	} {
		r := branched(t)
		before := observe(r.g)
		_, err := r.g.Apply(r.g.Head()+1+tc.skip, tc.rec(r))
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.name, err, tc.want)
		}
		if after := observe(r.g); after != before {
			t.Errorf("%s: the graph changed\nfrom %s\n  to %s", tc.name, before, after)
		}
	}
}

func TestApply_NothingFollowsTheFinish(t *testing.T) {
	t.Parallel()
	r := branched(t)
	last := finished()
	r.apply(last)
	if r.g.Finished() != last.GetFinished() {
		t.Error("Finished is not the record's")
	}
	want := "log corrupt at seq 5: a record after the run finished at seq 4"
	if _, err := r.g.Apply(5, claim(0)); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestApply_FirstRecordIsAClaim(t *testing.T) {
	t.Parallel()
	g := New("start", nil)
	want := "log corrupt at seq 1: the first record is not a claim"
	if _, err := g.Apply(1, nodeRecord(g.Node(RootID), pb.NodeStatus_NODE_STATUS_SUCCEEDED)); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCorruptError_UnwrapsToTheFault(t *testing.T) {
	t.Parallel()
	r := branched(t)
	_, err := r.g.Apply(4, nodeRecord(r.g.Node("a"), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spec("x", "x")))
	var fault *SpecError
	if !errors.As(err, &fault) || fault.NodeID != "x" {
		t.Errorf("err = %v", err)
	}
}
