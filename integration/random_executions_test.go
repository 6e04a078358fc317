package integration

import (
	"math"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// claimMark is a claim with what tells which executions were under it.
type claimMark struct {
	seq, atUs int64
	host      string
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
// failed attempt; and never when its record was there before the claim (G6).
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
