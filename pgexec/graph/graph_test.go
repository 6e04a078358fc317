package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// run builds a graph record by record, as an executor would.
type run struct {
	t *testing.T
	g *Graph
}

// start returns a run that has been claimed.
func start(t *testing.T) *run {
	t.Helper()
	r := &run{t, New("start", jsonPayload(`{"in":1}`))}
	r.apply(claim(0))
	return r
}

func (r *run) apply(rec *pb.Record) []NodeID {
	r.t.Helper()
	ready, err := r.g.Apply(r.g.Head()+1, rec)
	if err != nil {
		r.t.Fatalf("Apply: %v", err)
	}
	return ids(ready)
}

// end records how a node ended and returns what that made ready.
func (r *run) end(id NodeID, status pb.NodeStatus, spawned ...*pb.NodeSpec) []NodeID {
	r.t.Helper()
	return r.apply(nodeRecord(r.g.Node(id), status, spawned...))
}

func (r *run) succeed(id NodeID, spawned ...*pb.NodeSpec) []NodeID {
	r.t.Helper()
	return r.end(id, pb.NodeStatus_NODE_STATUS_SUCCEEDED, spawned...)
}

func (r *run) fail(id NodeID, spawned ...*pb.NodeSpec) []NodeID {
	r.t.Helper()
	return r.end(id, pb.NodeStatus_NODE_STATUS_FAILED, spawned...)
}

// succeedFinal records an output that is marked final.
func (r *run) succeedFinal(id NodeID, spawned ...*pb.NodeSpec) {
	r.t.Helper()
	rec := nodeRecord(r.g.Node(id), pb.NodeStatus_NODE_STATUS_SUCCEEDED, spawned...)
	rec.GetNode().Final = true
	r.apply(rec)
}

func (r *run) expect(id NodeID, want Status) {
	r.t.Helper()
	if got := r.g.Node(id).Status(); got != want {
		r.t.Errorf("node %s is %s, want %s", id, got, want)
	}
}

func (r *run) expectFailure(want NodeID) {
	r.t.Helper()
	if got := idOf(r.g.Failure()); got != want {
		r.t.Errorf("Failure is %q, want %q", got, want)
	}
}

func (r *run) expectResult(want NodeID) {
	r.t.Helper()
	if got := idOf(r.g.Result()); got != want {
		r.t.Errorf("Result is %q, want %q", got, want)
	}
}

func expectIDs(t *testing.T, got []NodeID, want ...NodeID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func ids(nodes []*Node) []NodeID {
	var out []NodeID
	for _, n := range nodes {
		out = append(out, n.ID)
	}
	return out
}

func idOf(n *Node) NodeID {
	if n == nil {
		return ""
	}
	return n.ID
}

func jsonPayload(text string) *pb.Payload {
	return &pb.Payload{Value: &pb.Payload_Json{Json: []byte(text)}}
}

func claim(dead int32) *pb.Record {
	return &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 7, DeadReplicaId: dead}}}
}

func attemptFailed(id NodeID, attempt uint32) *pb.Record {
	return &pb.Record{Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{
		NodeId: string(id), Attempt: attempt, NotBeforeUs: 1000 * int64(attempt),
	}}}
}

func control(kind pb.ControlKind) *pb.Record {
	return &pb.Record{Body: &pb.Record_Control{Control: &pb.Control{Kind: kind}}}
}

func finished() *pb.Record {
	return &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: pb.RunStatus_RUN_STATUS_SUCCEEDED}}}
}

// nodeRecord is the record with which n ends.
func nodeRecord(n *Node, status pb.NodeStatus, spawned ...*pb.NodeSpec) *pb.Record {
	rec := &pb.Node{Id: string(n.ID), Kind: n.Kind, Status: status, Spawned: spawned, Attempt: n.Attempts + 1}
	for _, p := range n.Parents {
		rec.Parents = append(rec.Parents, string(p.ID))
	}
	if status == pb.NodeStatus_NODE_STATUS_SUCCEEDED {
		rec.Output = jsonPayload(fmt.Sprintf(`{"out":%q}`, n.ID))
	} else {
		rec.Error = &pb.Error{Message: "no luck at " + string(n.ID)}
	}
	return &pb.Record{Body: &pb.Record_Node{Node: rec}}
}

// spec describes a node that needs all parents succeeded.
func spec(id NodeID, parents ...string) *pb.NodeSpec {
	return &pb.NodeSpec{Id: string(id), Kind: "step", Parents: parents, Input: jsonPayload(`{"for":"` + string(id) + `"}`)}
}

// specDone describes a node that needs all parents done.
func specDone(id NodeID, parents ...string) *pb.NodeSpec {
	s := spec(id, parents...)
	s.Join = pb.Join_JOIN_ALL_DONE
	return s
}

func TestGraph_RootIsReadyFromTheStart(t *testing.T) {
	t.Parallel()
	g := New("start", jsonPayload(`{"in":1}`))
	expectIDs(t, ids(g.Frontier()), "root")
	root := g.Node(RootID)
	if root.Kind != "start" || string(root.Input.GetJson()) != `{"in":1}` || root.Status() != StatusReady {
		t.Errorf("root is %s of kind %q with input %s", root.Status(), root.Kind, root.Input.GetJson())
	}
	ready, err := g.Apply(1, claim(0))
	if err != nil || len(ready) != 0 {
		t.Errorf("the claim made %v ready, err %v", ids(ready), err)
	}
	expectIDs(t, ids(g.Frontier()), "root")
}

func TestGraph_FanOutAndJoin(t *testing.T) {
	t.Parallel()
	r := start(t)
	expectIDs(t, r.succeed("root", spec("join", "a", "b", "c"), spec("a", "root"), spec("b", "root"), spec("c", "root")), "a", "b", "c")
	expectIDs(t, r.succeed("b"))
	expectIDs(t, r.succeed("a", spec("a2", "a", "join")))
	expectIDs(t, ids(r.g.Frontier()), "c")
	expectIDs(t, r.succeed("c"), "join")
	expectIDs(t, r.succeed("join"), "a2")
	if r.g.Done() {
		t.Error("done although a2 is ready")
	}
	expectIDs(t, r.succeed("a2"))
	if !r.g.Done() || r.g.Len() != 6 {
		t.Errorf("Done = %v, Len = %d", r.g.Done(), r.g.Len())
	}
	r.expectResult("a2")
}

func TestGraph_FrontierKeepsTheOrderOfBecomingReady(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("c", "root"))
	r.succeed("b", spec("d", "b"), spec("e", "b"))
	expectIDs(t, ids(r.g.Frontier()), "a", "c", "d", "e")
	r.succeed("a", spec("f", "a"))
	expectIDs(t, ids(r.g.Frontier()), "c", "d", "e", "f")
}

func TestGraph_SpawnedUnderDoneParentsIsReadyAtOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("c", "root"))
	r.fail("a")
	r.succeed("b")
	expectIDs(t, r.succeed("c", specDone("x", "a", "b"), spec("y", "root", "b"), spec("z", "a")), "x", "y")
	r.expect("z", StatusSkipped)
}

func TestGraph_SkipsPropagateAtOnce(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("slow", "root"), spec("b", "a", "slow"), spec("c", "b"), specDone("end", "c"))
	expectIDs(t, r.fail("a"), "end")
	r.expect("b", StatusSkipped)
	r.expect("c", StatusSkipped)
	r.expect("slow", StatusReady)
	expectIDs(t, r.succeed("slow"))
	r.expect("b", StatusSkipped)
}

func TestGraph_AllButSucceededCountsAsFailed(t *testing.T) {
	t.Parallel()
	for _, status := range []pb.NodeStatus{
		pb.NodeStatus_NODE_STATUS_FAILED, pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN, pb.NodeStatus_NODE_STATUS_CANCELLED,
	} {
		r := start(t)
		r.succeed("root", spec("a", "root"), spec("b", "a"), specDone("c", "a"))
		expectIDs(t, r.end("a", status), "c")
		r.expect("b", StatusSkipped)
		if got := r.g.Node("a").Status(); !got.Failed() || !got.Done() {
			t.Errorf("%s: Failed = %v, Done = %v", got, got.Failed(), got.Done())
		}
	}
}

// A chain of 100,000 skips must not overflow the stack; nor may the way back
// from the node that handles it.
func TestGraph_LongChainOfSkips(t *testing.T) {
	t.Parallel()
	const n = MaxSpawned - 2
	r := start(t)
	specs := []*pb.NodeSpec{spec("first", "root"), specDone("end", fmt.Sprint("s", n-1))}
	before := "first"
	for i := range n {
		id := fmt.Sprint("s", i)
		specs = append(specs, spec(NodeID(id), before))
		before = id
	}
	slices.Reverse(specs) // every parent comes after its child
	r.succeed("root", specs...)
	expectIDs(t, r.fail("first"), "end")
	r.expect(NodeID(before), StatusSkipped)
	r.expectFailure("")
}

func TestFailure_LowestSeqThatNoAllDoneNodeSees(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("c", "root"), specDone("seesA", "a", "c"))
	r.expectFailure("")
	r.fail("a")
	r.expectFailure("") // handled although seesA still waits for c
	r.fail("c")
	r.expectFailure("") // seesA sees c as well
	r.fail("b")
	r.expectFailure("b")
	r.fail("seesA")
	r.expectFailure("b")
}

func TestFailure_HandledThroughSkippedNodes(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "a"), spec("c", "b"), specDone("end", "c", "other"), spec("other", "root"))
	r.fail("a")
	r.expectFailure("")
}

func TestFailure_SecondParentOfASkippedNode(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("both", "a", "b"), specDone("end", "both"))
	r.fail("a")
	r.fail("b") // both is skipped already
	r.expectFailure("")
}

func TestFailure_HandledByANodeAttachedLater(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("skipped", "a"), spec("b", "root"), spec("c", "root"), spec("d", "root"))
	r.fail("a")
	r.fail("b")
	r.expectFailure("a")
	r.succeed("c", specDone("seesSkipped", "skipped"))
	r.expectFailure("b")
	r.succeed("d", spec("alsoSkipped", "b"), specDone("end", "alsoSkipped"))
	r.expectFailure("")
}

func TestFailure_AnAllSucceededChildHandlesNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"))
	r.fail("a")
	r.succeed("b", spec("c", "a"), specDone("d", "b"))
	r.expectFailure("a")
	r.expect("c", StatusSkipped)
}

func TestResult_FinalElseLastLeaf(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.expectResult("")
	r.succeed("root", spec("a", "root"), spec("b", "root"), spec("c", "root"), spec("d", "root"))
	r.expectResult("")
	r.succeed("a")
	r.expectResult("a")
	r.succeed("b", spec("b2", "b"))
	r.expectResult("a")
	r.fail("c")
	r.expectResult("a")
	r.succeedFinal("d", spec("d2", "d"))
	r.expectResult("d")
	r.succeed("b2")
	r.expectResult("d")
	r.succeedFinal("d2")
	r.expectResult("d2")
}

func TestResult_ALeafThatGetsAChildIsNoLeaf(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("a", "root"), spec("b", "root"))
	r.succeed("a")
	r.expectResult("a")
	r.succeed("b", spec("late", "a", "b"))
	r.expectResult("")
	r.fail("late")
	r.expectResult("")
}

func TestGraph_AttemptsSurvive(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.apply(attemptFailed("root", 1))
	r.apply(claim(0))
	r.apply(attemptFailed("root", 2))
	root := r.g.Node(RootID)
	if root.Attempts != 2 || root.NotBefore != 2000 {
		t.Errorf("Attempts = %d, NotBefore = %d", root.Attempts, root.NotBefore)
	}
	expectIDs(t, ids(r.g.Frontier()), "root")
	r.apply(&pb.Record{Body: &pb.Record_Started{Started: &pb.Started{NodeId: "root", Attempt: 3}}})
	if root.StartedAttempt != 3 {
		t.Errorf("StartedAttempt = %d", root.StartedAttempt)
	}
}

// C17, C18: claims after a drain are no deaths, and progress of any kind ends the count.
func TestDeathsWithoutProgress(t *testing.T) {
	t.Parallel()
	r := start(t)
	expect := func(want ...int32) {
		t.Helper()
		if got := r.g.DeathsWithoutProgress(); !slices.Equal(got, want) {
			t.Errorf("seq %d: deaths of %d, want %d", r.g.Head(), got, want)
		}
	}
	expect()
	r.apply(claim(8))
	r.apply(claim(9))
	expect(8, 9)
	r.apply(claim(0))
	expect(8, 9)
	r.apply(control(pb.ControlKind_CONTROL_KIND_PAUSED))
	expect(8, 9)
	r.apply(control(pb.ControlKind_CONTROL_KIND_RESUMED))
	expect()
	r.apply(claim(8))
	r.apply(attemptFailed("root", 1))
	expect()
	r.apply(claim(8))
	r.succeed("root")
	expect()
}

func TestUsage_SumsAndSaturates(t *testing.T) {
	t.Parallel()
	r := start(t)
	spend := func(id NodeID, status pb.NodeStatus, u *pb.Usage, spawned ...*pb.NodeSpec) {
		rec := nodeRecord(r.g.Node(id), status, spawned...)
		rec.GetNode().Usage = u
		r.apply(rec)
	}
	spend("root", pb.NodeStatus_NODE_STATUS_SUCCEEDED, &pb.Usage{InputTokens: 10, OutputTokens: 3, CostNanoUsd: 500},
		spec("a", "root"), spec("b", "root"))
	spend("a", pb.NodeStatus_NODE_STATUS_FAILED, &pb.Usage{InputTokens: 5, CostNanoUsd: math.MaxInt64})
	spend("b", pb.NodeStatus_NODE_STATUS_SUCCEEDED, nil)
	want := Usage{Nodes: 3, InputTokens: 15, OutputTokens: 3, CostNanoUSD: math.MaxInt64}
	if got := r.g.Usage(); got != want {
		t.Errorf("Usage = %+v, want %+v", got, want)
	}
}

// No copies of outputs and inputs that nobody asked for.
func TestApply_KeepsThePayloadsOfTheRecord(t *testing.T) {
	t.Parallel()
	r := start(t)
	child := spec("a", "root")
	rec := nodeRecord(r.g.Node(RootID), pb.NodeStatus_NODE_STATUS_SUCCEEDED, child)
	r.apply(rec)
	if r.g.Node(RootID).Output != rec.GetNode().GetOutput() || r.g.Node("a").Input != child.GetInput() {
		t.Error("a payload was copied")
	}
}

func TestNewID_StepsOverIDsThatAreTaken(t *testing.T) {
	t.Parallel()
	r := start(t)
	expect := func(kind string, want NodeID) {
		t.Helper()
		if got := r.g.NewID(kind); got != want {
			t.Errorf("NewID(%q) = %s, want %s", kind, got, want)
		}
	}
	expect("step", "step-1")
	expect("step", "step-2")
	expect("other", "other-1")
	rec := nodeRecord(r.g.Node(RootID), pb.NodeStatus_NODE_STATUS_SUCCEEDED,
		spec("step-3", "root"), spec("step-7", "root"), spec("step-08", "root"), spec("step-", "root"), spec("step-9x", "root"),
		spec("other-2", "root"), spec("step-99999999999999999999", "root"))
	if err := r.g.Check(rec.GetNode()); err != nil {
		t.Fatal(err)
	}
	expect("other", "other-3")
	r.apply(rec)
	expect("step", "step-8")
	expect("x-1", "x-1-1")
}

func TestStatus_String(t *testing.T) {
	t.Parallel()
	var words []string
	for s := StatusWaiting; s <= StatusSkipped+1; s++ {
		words = append(words, s.String())
	}
	if got := strings.Join(words, ", "); got != "waiting, ready, succeeded, failed, outcome unknown, cancelled, skipped, unknown" {
		t.Error(got)
	}
}
