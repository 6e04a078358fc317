package integration

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// checkQuiet waits until nothing is owned, listed, locked or waiting but the replicas that live.
func checkQuiet(ctx context.Context, t *testing.T, pool *pgxpool.Pool, replicas int) {
	t.Helper()
	for _, c := range []struct {
		what, count string
		want        int
	}{
		{"runs with an owner", `select count(*) from pgexec.runs where owner is not null`, 0},
		{"runs with a wake", `select count(*) from pgexec.runs where wake_job is not null`, 0},
		{"wake jobs that are not over", `select count(*) from pgexec.river_job where kind = 'pgexec_wake' and finalized_at is null`, 0},
		{"wake jobs given up", `select count(*) from pgexec.river_job where state in ('discarded', 'cancelled')`, 0},
		{"listed replicas", `select count(*) from pgexec.replicas`, replicas},
		{"advisory locks", countLocks, replicas},
	} {
		deadline := time.Now().Add(patience)
		for {
			var n int
			if err := pool.QueryRow(ctx, c.count).Scan(&n); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			if n == c.want {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: %d, want %d", c.what, n, c.want)
				break
			}
			pause(ctx, t)
		}
	}
}

// executionCounts says how often each replica process executed each node of a run.
type executionCounts map[string]map[string]int // node id -> host -> executions

// readExecutions reads what the replica processes have noted.
func readExecutions(t *testing.T, dir string) map[pgexec.RunID]executionCounts {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[pgexec.RunID]executionCounts)
	for _, file := range files {
		f, err := os.Open(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			run, node, _ := strings.Cut(scan.Text(), " ")
			id, err := pgexec.ParseRunID(run)
			if err != nil {
				t.Fatal(err)
			}
			if all[id] == nil {
				all[id] = make(executionCounts)
			}
			if all[id][node] == nil {
				all[id][node] = make(map[string]int)
			}
			all[id][node][file.Name()]++
		}
		f.Close()
	}
	return all
}

// tally adds up what the checks have seen.
type tally struct {
	nodes, executions, claims, afterDeath int
	tight                                 int // nodes that were executed once more for each death
}

func (a *tally) add(b tally) {
	a.nodes += b.nodes
	a.executions += b.executions
	a.claims += b.claims
	a.afterDeath += b.afterDeath
	a.tight += b.tight
}

// logCheck follows one run's log from record to record.
type logCheck struct {
	t    *testing.T
	run  insertedRun
	plan plan
	want []uint32
	// executions are what the replicas have noted of this run; nil where they note nothing.
	executions executionCounts

	owner    int32
	claims   map[string]int // by host, so far
	recorded map[string]bool
	finished *pb.Finished
	tally    tally
}

// checkRun compares a finished run with the model of its plan.
func checkRun(ctx context.Context, t *testing.T, pool *pgxpool.Pool, run insertedRun, executions executionCounts) tally {
	t.Helper()
	c := &logCheck{
		t: t, run: run, plan: shapes[run.shape], want: shapes[run.shape].outputs(run.seed), executions: executions,
		claims: make(map[string]int), recorded: make(map[string]bool),
	}
	// An error says that the seqs are not 1…n.
	if err := runlog.Read(ctx, pool, run.id, 0, c.record); err != nil {
		t.Error(err)
	}
	if len(c.recorded) != len(c.plan) {
		t.Errorf("run %s: %d nodes are recorded, want %d", run.id, len(c.recorded), len(c.plan))
	}
	if c.finished.GetStatus() != pb.RunStatus_RUN_STATUS_SUCCEEDED {
		t.Errorf("run %s: the log ends with %v", run.id, c.finished)
	}
	var status, result string
	var epoch int
	err := pool.QueryRow(ctx, `select status, coalesce(result::text, ''), epoch from pgexec.runs where run_id = $1`, run.id).
		Scan(&status, &result, &epoch)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.FormatUint(uint64(c.want[len(c.want)-1]), 10); status != "succeeded" || result != want {
		t.Errorf("run %s: %s with result %s, want %s", run.id, status, result, want)
	}
	if epoch != c.tally.claims {
		t.Errorf("run %s: epoch %d after %d claims", run.id, epoch, c.tally.claims)
	}
	return c.tally
}

func (c *logCheck) record(seq runlog.Seq, rec *pb.Record) error {
	if c.finished != nil {
		c.t.Errorf("run %s: record %d comes after the last one", c.run.id, seq)
	}
	switch {
	case rec.GetClaim() != nil:
		c.claim(seq, rec.GetClaim())
	case rec.GetNode() != nil:
		c.node(seq, rec.GetNode())
	case rec.GetFinished() != nil:
		c.finished = rec.GetFinished()
	default:
		c.t.Errorf("run %s: record %d is not expected: %v", c.run.id, seq, rec)
	}
	return nil
}

func (c *logCheck) claim(seq runlog.Seq, claim *pb.Claim) {
	c.tally.claims++
	if claim.Epoch != int64(c.tally.claims) {
		c.t.Errorf("run %s: record %d is claim number %d with epoch %d", c.run.id, seq, c.tally.claims, claim.Epoch)
	}
	if claim.DeadReplicaId != 0 {
		c.tally.afterDeath++
		if claim.DeadReplicaId != c.owner {
			c.t.Errorf("run %s: record %d names %d as the dead owner, which was %d", c.run.id, seq, claim.DeadReplicaId, c.owner)
		}
	}
	c.owner = claim.ReplicaId
	c.claims[claim.Host]++
}

func (c *logCheck) node(seq runlog.Seq, n *pb.Node) {
	i := c.plan.index(n.Id)
	if i < 0 {
		c.t.Errorf("run %s: record %d is of node %q, which is not planned", c.run.id, seq, n.Id)
		return
	}
	c.tally.nodes++
	if c.recorded[n.Id] {
		c.t.Errorf("run %s: node %s is recorded again at %d", c.run.id, n.Id, seq)
	}
	c.recorded[n.Id] = true
	if n.ReplicaId != c.owner {
		c.t.Errorf("run %s: record %d is of replica %d, owner is %d", c.run.id, seq, n.ReplicaId, c.owner)
	}
	if got, want := string(n.Output.GetJson()), strconv.FormatUint(uint64(c.want[i]), 10); got != want {
		c.t.Errorf("run %s: node %s returned %s, want %s", c.run.id, n.Id, got, want)
	}
	if !slices.Equal(n.Parents, c.plan.parentIDs(i)) {
		c.t.Errorf("run %s: node %s has parents %v", c.run.id, n.Id, n.Parents)
	}
	for _, parent := range n.Parents {
		if !c.recorded[parent] {
			c.t.Errorf("run %s: node %s is recorded before its parent %s", c.run.id, n.Id, parent)
		}
	}
	if n.Attempt != 1 {
		c.t.Errorf("run %s: node %s took %d attempts: a lost replica was counted as one", c.run.id, n.Id, n.Attempt)
	}
	if c.executions != nil {
		c.checkExecutions(n.Id)
	}
}

// checkExecutions holds all processes together to one execution of a node and one
// more for each death of the run's owner before the node was recorded, and each
// to one for each claim that it made of the run until then. What a drain or a release
// hands over was not in flight: it adds none.
func (c *logCheck) checkExecutions(node string) {
	total := 0
	for host, n := range c.executions[node] {
		total += n
		if n > c.claims[host] {
			c.t.Errorf("run %s: node %s was executed %d times by %s, which claimed the run %d times before it was recorded",
				c.run.id, node, n, host, c.claims[host])
		}
	}
	switch most := 1 + c.tally.afterDeath; {
	case total == 0:
		c.t.Errorf("run %s: node %s is recorded and was never executed", c.run.id, node)
	case total > most:
		c.t.Errorf("run %s: node %s was executed %d times: %v, and only %d owners of the run had died before it was recorded",
			c.run.id, node, total, c.executions[node], c.tally.afterDeath)
	case total == most && most > 1:
		c.tally.tight++
	}
	c.tally.executions += total
}
