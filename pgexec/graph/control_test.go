package graph

import (
	"testing"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func finishedAs(status pb.RunStatus) *pb.Record {
	return &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: status}}}
}

func retried(ids ...string) *pb.Record {
	return &pb.Record{Body: &pb.Record_Control{Control: &pb.Control{Kind: pb.ControlKind_CONTROL_KIND_RETRIED, NodeIds: ids}}}
}

// endChild records the end of a node whose execution was a child run that has spent so many tokens.
func (r *run) endChild(id NodeID, status pb.NodeStatus, tokens int64) {
	r.t.Helper()
	rec := nodeRecord(r.g.Node(id), status)
	rec.GetNode().ChildRunId, rec.GetNode().Usage = "c", &pb.Usage{InputTokens: tokens, OutputTokens: 1, CostNanoUsd: 2 * tokens}
	r.apply(rec)
}

// A child run that is retried says all that it has spent; what it had spent before is not counted twice.
func TestUsage_OfARetriedChildRunCountsOnce(t *testing.T) {
	r := start(t)
	r.endChild(RootID, pb.NodeStatus_NODE_STATUS_FAILED, 10)
	for _, tokens := range []int64{15, 15} {
		r.apply(finishedAs(pb.RunStatus_RUN_STATUS_FAILED))
		r.apply(claim(0))
		r.apply(retried(string(RootID)))
		r.endChild(RootID, pb.NodeStatus_NODE_STATUS_FAILED, tokens)
	}
	want := Usage{Nodes: 3, InputTokens: 15, OutputTokens: 1, CostNanoUSD: 30}
	if got := r.g.Usage(); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

// A run that was cancelled because the run above it failed goes on when that is retried.
func TestRetried_ACancelledRunGoesOnWhereItWas(t *testing.T) {
	r := start(t)
	r.succeed(RootID, spec("a", string(RootID)), spec("b", string(RootID)))
	r.succeed("a")
	r.apply(finishedAs(pb.RunStatus_RUN_STATUS_CANCELLED))
	r.apply(claim(0))
	r.apply(retried())
	if got := ids(r.g.Frontier()); len(got) != 1 || got[0] != "b" || r.g.Finished() != nil {
		t.Errorf("frontier %v, finished %v", got, r.g.Finished())
	}
	r.succeed("b")
	if !r.g.Done() {
		t.Error("not done")
	}
}

// C18: deaths, and claims without progress, are counted anew from a retry.
func TestRetried_DeathsAreCountedAnew_C18(t *testing.T) {
	r := start(t)
	r.endChild(RootID, pb.NodeStatus_NODE_STATUS_FAILED, 1)
	r.apply(claim(7))
	r.apply(claim(8))
	if deaths, claims := len(r.g.DeathsWithoutProgress()), r.g.ClaimsWithoutProgress(); deaths != 2 || claims != 2 {
		t.Errorf("%d deaths, %d claims; want 2 of each", deaths, claims)
	}
	r.apply(finishedAs(pb.RunStatus_RUN_STATUS_FAILED))
	r.apply(claim(0))
	r.apply(retried(string(RootID)))
	if deaths, claims := len(r.g.DeathsWithoutProgress()), r.g.ClaimsWithoutProgress(); deaths != 0 || claims != 0 {
		t.Errorf("%d deaths, %d claims after a retry", deaths, claims)
	}
}

func TestRetried_NothingFollowsASuccess(t *testing.T) {
	r := start(t)
	r.succeed(RootID)
	r.apply(finishedAs(pb.RunStatus_RUN_STATUS_SUCCEEDED))
	if _, err := r.g.Apply(r.g.Head()+1, claim(0)); err == nil {
		t.Error("a claim after a success is taken")
	}
}
