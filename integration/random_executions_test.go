package integration

import (
	"math"
	"slices"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// claimMark is a claim with what tells which executions were under it.
type claimMark struct {
	seq, atUs  int64
	host       string
	afterDeath bool
}

// nodeMark is a record that changed whether a node may be executed.
type nodeMark struct {
	seq  int64
	what nodeChange
}

type nodeChange int

const (
	nodeRecorded nodeChange = iota
	attemptRecorded
	nodeRevived
)

func (r *runCheck) mark(id string, seq int64, what nodeChange) {
	r.marks[id] = append(r.marks[id], nodeMark{seq: seq, what: what})
}

// under is a claim, by its place, under which a node was executed.
type under struct {
	node  string
	claim int
}

// checkExecutions: under each claim a node is executed once, and once more for each
// failed attempt; and never when its record was there before the claim (G6). Between two
// claims under which it was executed it has a record, or an owner died, or the run was cancelled and then retried.
func (r *runCheck) checkExecutions() {
	count := make(map[under]int)
	for node, executions := range r.tree.executions[r.id] {
		for _, e := range executions {
			r.tree.tally.executions++
			claim := r.claimOf(e)
			if claim < 0 {
				r.errorf("node %s was executed by %s, which did not own the run", node, e.host)
				continue
			}
			count[under{node, claim}]++
		}
	}
	for u, n := range count {
		if most := r.mostUnder(u); n > most {
			r.errorf("node %s was executed %d times under claim %d, of %s, want at most %d times",
				u.node, n, u.claim+1, r.claims[u.claim].host, most)
		}
	}
	for u := range count {
		if before := r.executedBefore(u, count); before >= 0 && !r.cutOff(u.node, before, u.claim) {
			r.errorf("node %s was executed under claims %d and %d, with no record between them and no death of an owner", u.node, before+1, u.claim+1)
		}
	}
	for node, n := range r.last {
		inDoubt := n.Status == pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN || n.SignalId != 0
		if r.model.nodes[node].spawn.Step != nil && !inDoubt && len(r.tree.executions[r.id][node]) == 0 {
			r.errorf("node %s is recorded and was never executed", node)
		}
	}
}

// claimOf returns the claim under which something was executed: the last one that its
// replica made before. A replica ends all that it does before it makes claims under a new id.
func (r *runCheck) claimOf(e execution) int {
	claim := -1
	for i, c := range r.claims {
		if c.host == e.host && c.atUs <= e.atUs {
			claim = i
		}
	}
	return claim
}

// executedBefore returns the last claim before under which the node was executed, or -1.
func (r *runCheck) executedBefore(u under, count map[under]int) int {
	for claim := u.claim - 1; claim >= 0; claim-- {
		if count[under{u.node, claim}] > 0 {
			return claim
		}
	}
	return -1
}

// cutOff reports that what was executed under one claim had to be executed again under a later one.
func (r *runCheck) cutOff(node string, from, to int) bool {
	for _, c := range r.claims[from+1 : to+1] {
		if c.afterDeath {
			return true
		}
	}
	first, last := r.claims[from].seq, r.claims[to].seq
	for _, l := range r.tree.logs[r.id][first : last-1] {
		if l.rec.GetFinished() != nil {
			return true
		}
	}
	return slices.ContainsFunc(r.marks[node], func(m nodeMark) bool { return first < m.seq && m.seq < last })
}

// mostUnder says how often a node may be executed under a claim.
func (r *runCheck) mostUnder(u under) int {
	from, to := r.claims[u.claim].seq, int64(math.MaxInt64)
	if u.claim+1 < len(r.claims) {
		to = r.claims[u.claim+1].seq
	}
	recorded, most := false, 1
	for _, m := range r.marks[u.node] {
		switch {
		case m.seq < from && m.what == nodeRecorded:
			recorded = true
		case m.seq < to && m.what == nodeRevived:
			recorded = false
		case from < m.seq && m.seq < to && m.what == attemptRecorded:
			most++
		}
	}
	if recorded {
		return 0
	}
	return most
}
