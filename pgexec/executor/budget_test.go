package executor

import (
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Nodes are counted once while they are in flight: the mark of an attempt that runs is no further node. At a limit that
// is not reached no node may be ended for it (G7).
func TestBudget_CountsNodesNotRecords_G7(t *testing.T) {
	r := &Run{
		x:       &Executor{Config: Config{NowFunc: time.Now}},
		g:       graph.New("root", nil),
		outside: outside{limits: wake.Limits{MaxNodes: 2}},
	}
	r.flight.attempts = 1
	mark := &pb.Record{Body: &pb.Record_Started{Started: &pb.Started{NodeId: "root"}}}
	r.flight.sent(mark)
	if limit := r.limitReached(); limit != "" {
		t.Errorf("with one node in flight: %s", limit)
	}
	end := &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "other"}}}
	r.flight.sent(end)
	if limit := r.limitReached(); limit != "limit max_nodes reached: 2 of 2 nodes" {
		t.Errorf("with two: %q", limit)
	}
	r.flight.back(end)
	r.flight.back(mark)
	if r.flight.attempts--; !r.flight.empty() || r.flight.nodes() != 0 {
		t.Errorf("in flight at the end: %+v", r.flight)
	}
}
