package graph

import (
	"fmt"
	"sync"
	"testing"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// look reads all that a handler may read: its own node and, walking upward,
// how the nodes that are done have ended.
func look(n *Node) (done, pending int) {
	seen := map[*Node]bool{}
	for todo := []*Node{n}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		todo = append(todo, at.Parents...)
		_ = fmt.Sprint(at.ID, at.Kind, at.Join, at.Input, at.InputRefs)
		if at.Status().Done() {
			done++
			_ = fmt.Sprint(at.Output, at.Err, at.Seq, at.Final)
		} else {
			pending++
		}
	}
	return done, pending
}

// Handlers read what ended before them without locks, while the owner applies
// records; the race detector is the judge.
func TestNode_HandlersReadAncestorsWhileTheOwnerApplies(t *testing.T) {
	t.Parallel()
	const most = 2000
	g := New("start", jsonPayload(`{}`))
	if _, err := g.Apply(1, claim(0)); err != nil {
		t.Fatal(err)
	}
	results := make(chan *pb.Node)
	var handlers sync.WaitGroup
	runNode := func(n *Node, attempt uint32, i int) {
		handlers.Go(func() {
			look(n)
			results <- handle(g, n, attempt, i, i < most)
		})
	}
	started := 0
	begin := func(nodes []*Node) {
		for _, n := range nodes {
			runNode(n, n.Attempts+1, started)
			started++
		}
	}
	begin(g.Frontier())
	for !g.Done() {
		rec := <-results
		if err := g.Check(rec); err != nil {
			t.Fatal(err)
		}
		ready, err := g.Apply(g.Head()+1, &pb.Record{Body: &pb.Record_Node{Node: rec}})
		if err != nil {
			t.Fatal(err)
		}
		begin(ready)
		g.Frontier()
		g.Failure()
		g.Result()
	}
	handlers.Wait()
	if g.Len() < most {
		t.Errorf("only %d nodes ran", g.Len())
	}
}

// handle is the handler of node number i: every seventh fails, most spawn two
// nodes and a join that survives failures.
func handle(g *Graph, n *Node, attempt uint32, i int, spawn bool) *pb.Node {
	rec := &pb.Node{Id: string(n.ID), Kind: n.Kind, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Attempt: attempt, Output: jsonPayload(`{}`)}
	for _, p := range n.Parents {
		rec.Parents = append(rec.Parents, string(p.ID))
	}
	if i%7 == 6 {
		rec.Status, rec.Output, rec.Error = pb.NodeStatus_NODE_STATUS_FAILED, nil, &pb.Error{Message: "no luck"}
	}
	if spawn {
		a, b, join := g.NewID("tool"), g.NewID("tool"), g.NewID("turn")
		rec.Spawned = []*pb.NodeSpec{spec(a, rec.Id), specDone(b, rec.Id), specDone(join, string(a), string(b))}
	}
	return rec
}

// A skipped node may have parents that still run: a handler that comes to them
// through it sees that they are not done.
func TestNode_WalkThroughASkippedNodeMeetsARunningOne(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.succeed("root", spec("fails", "root"), spec("slow", "root"), spec("skipped", "fails", "slow"), specDone("end", "skipped"))
	expectIDs(t, r.fail("fails"), "end")
	end := r.g.Node("end")
	looked := make(chan struct{})
	var handler sync.WaitGroup
	handler.Go(func() {
		if done, pending := look(end); done != 3 || pending != 2 {
			t.Errorf("saw %d done and %d pending nodes, want 3 and 2", done, pending)
		}
		close(looked)
		for !r.g.Node("slow").Status().Done() {
			look(end) // races with the record that ends slow
		}
		if done, _ := look(end); done != 4 {
			t.Errorf("saw %d done nodes, want 4", done)
		}
	})
	<-looked
	r.succeed("slow")
	handler.Wait()
}
