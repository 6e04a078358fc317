package integration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/executor"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// treeCheck compares all runs of one program with the model.
type treeCheck struct {
	*evidence
	minded   *minded
	problems []string
	tally    randomTally
}

// randomTally adds up what the checks have seen.
type randomTally struct {
	runs, records, nodes, executions, claims, afterDeath, signals, children, retried, paused, effects, doubts int
	statuses                                                                                                  map[string]int
}

func (a *randomTally) add(b randomTally) {
	a.runs += b.runs
	a.records += b.records
	a.nodes += b.nodes
	a.executions += b.executions
	a.claims += b.claims
	a.afterDeath += b.afterDeath
	a.signals += b.signals
	a.children += b.children
	a.retried += b.retried
	a.paused += b.paused
	a.effects += b.effects
	a.doubts += b.doubts
	for status, n := range b.statuses {
		a.statuses[status] += n
	}
}

// runCheck follows one run's log from record to record.
type runCheck struct {
	tree  *treeCheck
	id    pgexec.RunID
	path  []string
	model *model
	row   runRow

	owner    int32
	claims   []claimMark
	paused   bool
	finished *pb.Finished
	// attempts are those that have failed since the node's last revival.
	attempts map[string]uint32
	started  map[string]startMark // at-most-once nodes
	starts   map[string]int       // how often each was started
	last     map[string]*pb.Node
	lastSeq  map[string]int64
	marks    map[string][]nodeMark
	records  int64
	// wasted is what steps had spent that failed after they had worked: their transaction did.
	wasted [3]int64
}

func (c *treeCheck) check() {
	c.tally.statuses = make(map[string]int)
	c.run(c.minded.root, nil, c.minded.program.Root)
}

func (r *runCheck) errorf(format string, args ...any) {
	r.tree.problems = append(r.tree.problems,
		fmt.Sprintf("run %s (%s): ", r.id, strings.Join(append([]string{"root"}, r.path...), "/"))+fmt.Sprintf(format, args...))
}

// run checks a run and those below it.
func (c *treeCheck) run(id pgexec.RunID, path []string, first *step) *runCheck {
	r := &runCheck{
		tree: c, id: id, path: path, model: newModel(first), row: c.rows[id],
		attempts: make(map[string]uint32), started: make(map[string]startMark), starts: make(map[string]int), last: make(map[string]*pb.Node), lastSeq: make(map[string]int64), marks: make(map[string][]nodeMark),
	}
	c.tally.runs++
	for i, rec := range c.logs[id] {
		if rec.seq != int64(i)+1 {
			r.errorf("record %d has seq %d", i+1, rec.seq)
			return r
		}
		r.record(rec.seq, rec.rec)
	}
	r.checkRow()
	r.checkExecutions()
	r.checkEffects()
	r.checkStarts()
	r.checkChildren()
	r.checkUsage()
	return r
}

func (r *runCheck) record(seq int64, rec *pb.Record) {
	r.tree.tally.records++
	switch {
	case rec.GetClaim() != nil:
		r.claim(seq, rec.GetClaim())
	case seq == 1:
		r.errorf("the log does not begin with a claim: %v", rec)
	case rec.GetControl() != nil:
		r.control(seq, rec.GetControl())
	case r.finished != nil || r.paused:
		r.errorf("record %d comes after the run has ended or paused: %v", seq, rec)
	case rec.GetNode() != nil:
		r.node(seq, rec.GetNode())
	case rec.GetAttemptFailed() != nil:
		r.attemptFailed(seq, rec.GetAttemptFailed())
	case rec.GetStarted() != nil:
		r.start(seq, rec.GetStarted())
	case rec.GetFinished() != nil:
		r.finish(rec.GetFinished())
	default:
		r.errorf("record %d is not expected: %v", seq, rec)
	}
}

func (r *runCheck) claim(seq int64, claim *pb.Claim) {
	r.tree.tally.claims++
	r.claims = append(r.claims, claimMark{seq: seq, atUs: claim.AtUs, host: claim.Host, afterDeath: claim.DeadReplicaId != 0})
	if claim.Epoch != int64(len(r.claims)) {
		r.errorf("record %d is claim number %d with epoch %d", seq, len(r.claims), claim.Epoch)
	}
	if claim.DeadReplicaId != 0 {
		r.tree.tally.afterDeath++
		if claim.DeadReplicaId != r.owner {
			r.errorf("record %d names %d as the dead owner, which was %d", seq, claim.DeadReplicaId, r.owner)
		}
	}
	r.owner = claim.ReplicaId
}

func (r *runCheck) control(seq int64, control *pb.Control) {
	switch control.Kind {
	case pb.ControlKind_CONTROL_KIND_PAUSED:
		r.tree.tally.paused++
		if r.paused || r.finished != nil {
			r.errorf("record %d pauses a run that stands still", seq)
		}
		if !strings.HasPrefix(control.Reason, "paused") && !strings.HasPrefix(control.Reason, "limit max_nodes reached") &&
			!strings.HasPrefix(control.Reason, "limit max_tokens reached") {
			r.errorf("paused: %s", control.Reason)
		}
		r.paused = true
	case pb.ControlKind_CONTROL_KIND_RESUMED:
		if !r.paused {
			r.errorf("record %d resumes a run that is not paused", seq)
		}
		r.paused = false
	case pb.ControlKind_CONTROL_KIND_RETRIED:
		r.retried(seq, control.NodeIds)
	default:
		r.errorf("record %d is not expected: %v", seq, control)
	}
}

// retried makes the failed nodes, and no others, run again.
func (r *runCheck) retried(seq int64, ids []string) {
	r.tree.tally.retried++
	if r.finished == nil {
		r.errorf("record %d retries a run that has not ended", seq)
	}
	if want := r.model.unhandled(); !slices.Equal(ids, want) {
		r.errorf("record %d retries %v, want %v", seq, ids, want)
	}
	r.finished = nil
	for _, id := range ids {
		r.model.revive(id)
		r.attempts[id] = 0
		delete(r.started, id)
		r.mark(id, seq, nodeRevived)
	}
}

func (r *runCheck) attemptFailed(seq int64, a *pb.AttemptFailed) {
	inDoubt := r.inDoubt(a.NodeId)
	r.attempts[a.NodeId]++
	r.mark(a.NodeId, seq, attemptRecorded)
	n, ok := r.model.nodes[a.NodeId]
	switch {
	case ok && n.spawn.Once != 0:
		if err := r.checkRunsAgain(n.spawn, a, inDoubt); err != nil {
			r.errorf("record %d: attempt %d of node %s failed: %v", seq, a.Attempt, a.NodeId, err)
		}
	case !ok || n.spawn.Step == nil || n.spawn.Step.Do != flaky && !n.spawn.Step.Writes:
		r.errorf("record %d: an attempt of node %s failed: %s", seq, a.NodeId, a.Error.GetMessage())
	case a.Attempt != r.attempts[a.NodeId]:
		r.errorf("record %d: attempt %d of node %s is its failed attempt number %d", seq, a.Attempt, a.NodeId, r.attempts[a.NodeId])
	}
	if a.ReplicaId != r.owner {
		r.errorf("record %d is of replica %d, owner is %d", seq, a.ReplicaId, r.owner)
	}
	if ok {
		r.waste(seq, n.spawn.Step, a.GetUsage())
	}
}

// waste counts what a failed attempt has spent: all that its step does, or nothing.
func (r *runCheck) waste(seq int64, step *step, u *pb.Usage) {
	got := spentBy(u)
	switch {
	case got == [3]int64{}:
		return
	case step == nil || got != step.spends():
		r.errorf("record %d: a failed attempt spent %v, its step is %+v", seq, got, step)
	}
	for i := range got {
		r.wasted[i] += got[i]
	}
}

func spentBy(u *pb.Usage) [3]int64 {
	return [3]int64{u.GetInputTokens(), u.GetOutputTokens(), u.GetCostNanoUsd()}
}

// node checks one node's record and tells the model of it.
func (r *runCheck) node(seq int64, n *pb.Node) {
	r.tree.tally.nodes++
	r.records++
	known, ok := r.model.nodes[n.Id]
	if !ok {
		r.errorf("record %d is of node %s, which nothing spawned", seq, n.Id)
		return
	}
	if _, ok := r.model.ended[n.Id]; ok {
		r.errorf("record %d: node %s is recorded again", seq, n.Id)
	}
	if n.ReplicaId != r.owner {
		r.errorf("record %d is of replica %d, owner is %d", seq, n.ReplicaId, r.owner)
	}
	if !slices.Equal(n.Parents, known.parents) {
		r.errorf("node %s has parents %v, want %v", n.Id, n.Parents, known.parents)
	}
	if n.Attempt != r.attempts[n.Id]+1 {
		r.errorf("record %d: node %s is said to end at attempt %d, after %d that failed", seq, n.Id, n.Attempt, r.attempts[n.Id])
	}
	r.mark(n.Id, seq, nodeRecorded)
	r.last[n.Id], r.lastSeq[n.Id] = n, seq
	got := ending{status: failed}
	if n.Status == pb.NodeStatus_NODE_STATUS_SUCCEEDED {
		got = ending{status: succeeded, output: string(n.Output.GetJson())}
	} else if known.spawn.Step != nil {
		r.waste(seq, known.spawn.Step, n.GetUsage())
	}
	if err := r.checkEnding(known.spawn, n, got); err != nil {
		r.errorf("record %d: node %s %s with %s (%s): %v", seq, n.Id, got.status, got.output, n.Error.GetMessage(), err)
	}
	r.model.end(n.Id, got, n.SignalId != 0 && known.spawn.Step != nil)
}

// checkEnding compares how a node ended with how it must, or may.
func (r *runCheck) checkEnding(sp *spawn, n *pb.Node, got ending) error {
	if sp.Step == nil {
		if _, err := r.model.parents(sp.ID); err != nil {
			return err
		}
	}
	took := time.Duration(n.FinishedUs-n.StartedUs) * time.Microsecond
	switch sp.Kind {
	case pgexec.KindSleep:
		if want := (ending{succeeded, "null"}); got != want {
			return fmt.Errorf("want %v", want)
		}
		if want := time.Duration(sp.SleepMs) * time.Millisecond; took < want {
			return fmt.Errorf("it slept for %v, want %v", took, want)
		}
		return nil
	case pgexec.KindSignal:
		return r.checkWait(sp, n, got, took)
	case pgexec.KindRun:
		if want := executor.ChildID(r.id, pgexec.NodeID(sp.ID)).String(); n.ChildRunId != want {
			return fmt.Errorf("its child run is %s, want %s", n.ChildRunId, want)
		}
		return nil // checkChildren compares it with the child
	}
	if sp.Once != 0 {
		if settled, err := r.checkOnce(sp, n, got); settled || err != nil {
			return err
		}
	}
	repaired := !r.tree.minded.repairedAt.IsZero() && n.FinishedUs > r.tree.minded.repairedAt.UnixMicro()
	want, attempts, err := r.model.outcome(sp.ID, repaired)
	if err == nil && sp.Step.Do == broken && got.status != want.status && r.nearRepair(n) {
		return nil // the handler looked before the repair, or after it
	}
	if err == nil && (got != want || attempts > 0 && int(n.Attempt) != attempts) {
		err = fmt.Errorf("want %v after %d attempts", want, attempts)
	}
	return err
}

// nearRepair reports that the fault was repaired while the node was in flight, give or take a clock's step.
func (r *runCheck) nearRepair(n *pb.Node) bool {
	at, slack := r.tree.minded.repairedAt.UnixMicro(), (2 * time.Second).Microseconds()
	return n.StartedUs-slack <= at && at <= n.FinishedUs+slack
}

// checkWait: a wait ends by a signal that is for it and that nothing else has consumed, or by its time.
func (r *runCheck) checkWait(sp *spawn, n *pb.Node, got ending, took time.Duration) error {
	if n.SignalId == 0 {
		if sp.Wait.TimeoutMs == 0 || took < time.Duration(sp.Wait.TimeoutMs)*time.Millisecond {
			return fmt.Errorf("it ended without a signal after %v", took)
		}
		want := ending{status: failed}
		if sp.Wait.Default != nil {
			want = ending{succeeded, fmt.Sprint(*sp.Wait.Default)}
		}
		if got != want || got.status == failed && n.Error.GetCode() != "timeout" {
			return fmt.Errorf("want %v for its timeout", want)
		}
		return nil
	}
	sent, err := r.consume(n.SignalId, sp.ID, sp.Wait.Name)
	if err != nil {
		return err
	}
	if want := (ending{succeeded, string(sent.payload())}); got != want {
		return fmt.Errorf("want %v", want)
	}
	return nil
}

// consume notes that a node has consumed a signal, which must be for it, and
// returns how it was sent.
func (r *runCheck) consume(id int64, node, name string) (action, error) {
	r.tree.tally.signals++
	if other, ok := r.tree.consumed[id]; ok {
		return action{}, fmt.Errorf("signal %d is consumed by %s as well", id, other)
	}
	r.tree.consumed[id] = r.id.String() + "/" + node
	s, ok := r.tree.signals[id]
	if !ok || s.run != r.id || s.name != name || s.node != "" && s.node != node {
		return action{}, fmt.Errorf("signal %d is not for it: %+v", id, s)
	}
	for _, a := range r.tree.minded.program.Actions {
		if a.Do == "signal" && a.Name == s.name && a.Node == s.node && string(a.payload()) == s.payload && slices.Equal(a.Run, r.path) {
			return a, nil
		}
	}
	return action{}, fmt.Errorf("signal %d was never sent", id)
}

func (r *runCheck) finish(fin *pb.Finished) {
	r.finished = fin
	unhandled := r.model.unhandled()
	switch fin.Status {
	case pb.RunStatus_RUN_STATUS_SUCCEEDED:
		if open := r.model.open(); len(open)+len(unhandled) > 0 {
			r.errorf("it succeeded with nodes %v open and the failures of %v unhandled", open, unhandled)
		}
		result := r.model.result()
		if fin.ResultSeq != r.lastSeq[result] {
			r.errorf("its result is record %d, want %d, of node %s", fin.ResultSeq, r.lastSeq[result], result)
		}
	case pb.RunStatus_RUN_STATUS_FAILED:
		if len(unhandled) == 0 || fin.ErrorNodeId != unhandled[0] {
			r.errorf("it failed because of node %q, want the first of %v", fin.ErrorNodeId, unhandled)
		}
	case pb.RunStatus_RUN_STATUS_CANCELLED:
	default:
		r.errorf("it ended as %v", fin)
	}
}

// checkRow compares the run's row with the log.
func (r *runCheck) checkRow() {
	r.tree.tally.statuses[r.row.status]++
	words := map[pb.RunStatus]string{
		pb.RunStatus_RUN_STATUS_SUCCEEDED: "succeeded",
		pb.RunStatus_RUN_STATUS_FAILED:    "failed",
		pb.RunStatus_RUN_STATUS_CANCELLED: "cancelled",
	}
	if r.finished == nil || words[r.finished.Status] != r.row.status {
		r.errorf("its row says %s, its log %v", r.row.status, r.finished)
		return
	}
	if r.row.epoch != int64(len(r.claims)) {
		r.errorf("epoch %d after %d claims", r.row.epoch, len(r.claims))
	}
	switch r.row.status {
	case "succeeded":
		want := "null"
		if result := r.model.result(); result != "" {
			want = r.model.ended[result].output
		}
		if r.row.result != want {
			r.errorf("its row has result %s, want %s", r.row.result, want)
		}
	case "failed":
		r.checkFailure()
	case "cancelled":
		if !r.tree.mayBeCancelled(r.id, r.path) {
			r.errorf("nobody cancelled it: %s", r.row.err)
		}
	}
}

// checkFailure: a run whose faults are repaired and that was retried fails for good reasons only.
func (r *runCheck) checkFailure() {
	n := r.last[r.finished.ErrorNodeId]
	if n == nil || !strings.Contains(r.row.err, n.Error.GetMessage()) {
		r.errorf("its row says %q, the node's record %v", r.row.err, n)
		return
	}
	if len(r.path) > 0 {
		return // that a child run fails may be just what its parent deals with
	}
	if n.Error.GetCode() == "child_cancelled" && !r.tree.minded.cancelled[executor.ChildID(r.id, pgexec.NodeID(n.Id))] {
		r.errorf("a child run that nobody cancelled makes it fail after %d retries: %s", r.tree.minded.retries, r.row.err)
	}
	if strings.Contains(r.row.err, broken) && !r.tree.minded.repairedAt.IsZero() {
		r.errorf("it fails after the repair and %d retries: %s", r.tree.minded.retries, r.row.err)
	}
}

// mayBeCancelled: somebody cancelled the run or one above it, or one above it failed.
func (c *treeCheck) mayBeCancelled(id pgexec.RunID, path []string) bool {
	if c.minded.cancelled[id] {
		return true
	}
	for n := range path {
		above := runAt(c.minded.root, path[:n])
		if c.minded.cancelled[above] {
			return true
		}
		for _, rec := range c.logs[above] {
			if rec.rec.GetFinished().GetStatus() == pb.RunStatus_RUN_STATUS_FAILED {
				return true
			}
		}
	}
	return false
}

// checkEffects: a node that writes has done so exactly once if it succeeded, and not at all otherwise (G6).
func (r *runCheck) checkEffects() {
	written := r.tree.effects[r.id]
	for id, n := range r.model.nodes {
		e := r.model.ended[id]
		var want []string
		if s := n.spawn.Step; s != nil && s.Writes && e.status == succeeded {
			want = []string{e.output}
			r.tree.tally.effects++
		}
		if !slices.Equal(written[id], want) {
			r.errorf("node %s has written %v, want %v", id, written[id], want)
		}
	}
}

// checkChildren compares run nodes with their child runs, and checks those.
func (r *runCheck) checkChildren() {
	for id, n := range r.model.nodes {
		if n.spawn.Kind != pgexec.KindRun {
			continue
		}
		childID := executor.ChildID(r.id, pgexec.NodeID(id))
		row, exists := r.tree.rows[childID]
		_, ended := r.model.ended[id]
		switch {
		case !exists && ended:
			r.errorf("child run %s of node %s does not exist", childID, id)
		case exists && (row.parent != r.id || row.parentNode != id):
			r.errorf("child run %s says it is of node %s of run %s", childID, row.parentNode, row.parent)
		case exists:
			r.tree.tally.children++
			delete(r.tree.unchecked, childID)
			child := r.tree.run(childID, append(slices.Clone(r.path), id), n.spawn.Child)
			if ended {
				r.checkChild(r.last[id], child)
			}
		}
	}
}

// checkChild compares a run node's record with its child run's end.
func (r *runCheck) checkChild(n *pb.Node, child *runCheck) {
	if got := spentBy(n.GetUsage()); got != child.row.spent {
		r.errorf("node %s has usage %v, its child run %v", n.Id, got, child.row.spent)
	}
	status, code := succeeded, ""
	if n.Status != pb.NodeStatus_NODE_STATUS_SUCCEEDED {
		status, code = failed, n.Error.GetCode()
	}
	if child.row.status != status && code != "child_"+child.row.status {
		r.errorf("node %s %s (%s), its child run %s", n.Id, status, code, child.row.status)
	}
	if status == succeeded && string(n.Output.GetJson()) != child.row.result {
		r.errorf("node %s returned %s, its child run %s", n.Id, n.Output.GetJson(), child.row.result)
	}
}

// checkUsage adds up what the run's nodes spend, as the program says, with that of its child runs.
func (r *runCheck) checkUsage() {
	want := r.wasted
	for id, n := range r.last {
		var spent [3]int64
		switch sp := r.model.nodes[id].spawn; {
		case sp.Step != nil && n.Status == pb.NodeStatus_NODE_STATUS_SUCCEEDED && n.SignalId == 0:
			spent = sp.Step.spends()
		case sp.Kind == pgexec.KindRun:
			spent = spentBy(n.GetUsage())
		}
		for i := range want {
			want[i] += spent[i]
		}
	}
	if r.row.spent != want || r.row.nodes != r.records {
		r.errorf("its row says it spent %v on %d nodes, want %v on %d", r.row.spent, r.row.nodes, want, r.records)
	}
}
