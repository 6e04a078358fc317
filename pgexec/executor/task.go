package executor

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Tasks that are made by one statement: so many, and so many bytes of input.
const (
	maxTaskBatch      = 500
	maxTaskBatchBytes = 1 << 20
)

// task is what a node waits for that a program outside does. It has no
// goroutine; its row is made when the node starts, and again, if it is gone,
// wherever the run goes on. Its end is read with the inbox.
type task struct {
	kind  *Kind
	input []byte
	// What is known when it has ended.
	id, takenUs int64
}

// tasksStart is the making of some tasks.
type tasksStart struct {
	waits []*wait
	// existing: some were there already, and may have ended.
	existing bool
}

// kind returns what is known of a kind, nil if it is foreign. One that was
// declared is done by programs outside, whatever handlers this replica has.
func (x *Executor) kind(name string) *Kind {
	if k, ok := x.Tasks.Kind(name); ok {
		return &Kind{Name: name, external: true, Retry: RetryPolicy{
			MaxAttempts: k.MaxAttempts,
			MinBackoff:  time.Duration(k.MinBackoffUs) * time.Microsecond,
			MaxBackoff:  time.Duration(k.MaxBackoffUs) * time.Microsecond,
		}}
	}
	return x.Kinds[name]
}

// hasKind looks at the declared kinds before it says no. Where it cannot, the kind may be there: a node of one that is
// not waits until it is declared, while a no would be for good.
func (x *Executor) hasKind(ctx context.Context, name string) bool {
	if IsWait(name) || x.kind(name) != nil {
		return true
	}
	if err := x.Tasks.Refresh(ctx); err != nil {
		x.Logger.Warn("is the kind declared?", "kind", name, "error", err)
		return true
	}
	return x.kind(name) != nil
}

// miss sets a node aside whose kind is not known, and asks whether it has been declared lately.
func (r *Run) miss(n *graph.Node) {
	r.ready.foreign = append(r.ready.foreign, n)
	if r.ready.asking {
		return
	}
	r.ready.asking = true
	r.inBackground(func(ctx context.Context) event {
		if err := r.x.Tasks.Refresh(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("is the kind declared?", "kind", n.Kind, "error", err)
		}
		return event{asked: true}
	})
}

// kindsRead takes back what was set aside and is known now.
func (r *Run) kindsRead() {
	for _, n := range r.ready.takeForeign() {
		if r.x.kind(n.Kind) == nil {
			r.ready.foreign = append(r.ready.foreign, n)
			continue
		}
		r.enqueue([]*graph.Node{n})
	}
}

// beginTask has a program outside do the node, once its input is known.
func (r *Run) beginTask(n *graph.Node, kind *Kind) {
	w := &wait{node: n, task: &task{kind: kind}}
	input, err := resolveInput(n, readRecord)
	if errors.Is(err, errInBlob) {
		r.moveIn(w)
		return
	}
	r.openTask(w, input, err)
}

// openTask makes the task of a node with its input, or fails the node if that cannot be had.
func (r *Run) openTask(w *wait, input []byte, err error) {
	if err == nil {
		err = checkSize("task", input)
	}
	if err != nil {
		r.failWait(w, asFailure(r.ctx, err))
		return
	}
	w.task.input = input
	r.waiting.waits[w.node] = w
	r.waiting.count(w)
	r.waiting.newTasks = append(r.waiting.newTasks, w)
}

// startTasks makes the tasks of the waits that have begun, many in one statement.
func (r *Run) startTasks() {
	for len(r.waiting.newTasks) > 0 {
		n, size := 0, 0
		for n < min(len(r.waiting.newTasks), maxTaskBatch) && (n == 0 || size < maxTaskBatchBytes) {
			size += len(r.waiting.newTasks[n].task.input)
			n++
		}
		r.makeTasks(r.waiting.newTasks[:n:n])
		r.waiting.newTasks = r.waiting.newTasks[n:]
	}
	r.waiting.newTasks = nil
}

func (r *Run) makeTasks(waits []*wait) {
	params := wake.TasksParams{RunID: r.claimed.RunID, Owner: r.x.ReplicaID, Epoch: r.claimed.Epoch}
	size := 0
	for _, w := range waits {
		size += len(w.task.input)
		params.Tasks = append(params.Tasks, wake.Task{
			NodeID:     string(w.node.ID),
			Kind:       w.node.Kind,
			Attempt:    int(w.node.Attempts) + 1,
			Input:      w.task.input,
			AtMostOnce: neverTwice(w.node, w.task.kind),
			LimitKey:   r.limitKey(w),
		})
	}
	r.inBackgroundFor(timeFor(size), func(ctx context.Context) event {
		existing, err := wake.StartTasks(ctx, r.x.Pool, params)
		if err == nil {
			for _, t := range params.Tasks {
				r.x.Tasks.Announce(t.Kind)
			}
		}
		return event{tasks: &tasksStart{waits: waits, existing: existing}, err: err}
	})
}

// limitKey is what a fleet-wide limit of the kind, which workers meet when they take tasks, counts the task by.
func (r *Run) limitKey(w *wait) string {
	if limit, ok := r.x.Throttle.Limit(w.node.Kind); ok && limit.KeyPointer != "" {
		return throttle.Key(w.task.input, limit.KeyPointer)
	}
	return ""
}

// tasksStarted looks for the ends of tasks that were there already. Those that
// could not be made are tried again, unless they never can be: of several it is
// found out which.
func (r *Run) tasksStarted(s *tasksStart, err error) {
	switch {
	case err == nil:
		for _, w := range s.waits {
			w.task.input = nil
		}
		if s.existing {
			r.look()
		}
		return
	case errors.Is(err, runlog.ErrFenced):
		r.look() // not ours any more, or being cancelled: the inbox tells which
	case refusesData(err) && len(s.waits) > 1:
		half := len(s.waits) / 2
		r.makeTasks(s.waits[:half:half])
		r.makeTasks(s.waits[half:])
		return
	case refusesData(err):
		r.failWait(s.waits[0], &Failure{Err: err, Code: "bad_input"})
		return
	default:
		r.log.Warn("start tasks, trying again", "tasks", len(s.waits), "error", err)
	}
	for _, w := range s.waits {
		if !w.ending {
			r.retryChild(w)
		}
	}
}

// matchTasks ends the waits whose tasks have ended, and finds those of which the
// log has it already.
func (r *Run) matchTasks() {
	used := 0
	for _, t := range r.outside.inbox.Tasks {
		n := r.g.Node(graph.NodeID(t.NodeID))
		switch w := r.waiting.waits[n]; {
		case n == nil: // another owner's, who knows more
		case n.Status().Done() || t.Attempt <= int(n.Attempts):
			r.outside.recorded = append(r.outside.recorded, t.TaskID)
			used++
		case w == nil || w.task == nil || w.ending || w.asks || t.Attempt != int(n.Attempts)+1:
		default:
			r.taskEnded(w, t)
			used++
		}
	}
	if used > 0 && len(r.outside.inbox.Tasks) == wake.MaxTaskEnds {
		r.look() // there may be more
	}
}

// taskEnded appends what a worker says came of its task.
func (r *Run) taskEnded(w *wait, t wake.TaskEnd) {
	w.task.id, w.task.takenUs = t.TaskID, t.TakenAt.UnixMicro()
	end := &pb.Node{Usage: usageOf(t)}
	switch {
	case t.Succeeded && t.Output == nil:
		r.moveOutput(w, t.TaskID, end)
		return
	case t.Succeeded:
		end.Output = &pb.Payload{Value: &pb.Payload_Json{Json: t.Output}}
		r.endWait(w, end)
		return
	}
	if t.ErrorCode == wake.CodeTaskUndeclared {
		r.takeBack(w)
		return
	}
	f := &Failure{
		Err:        errors.New(cmp.Or(t.Error, "the worker did not say why")),
		Code:       t.ErrorCode,
		Permanent:  t.Permanent,
		RetryAfter: time.Duration(t.RetryAfterUs) * time.Microsecond,
	}
	if t.ErrorCode == wake.CodeTaskUnknown {
		r.doubt(w.node, w.task.kind, f)
		return
	}
	w.ending = true
	r.waiting.uncount(w)
	r.recordFailure(&attempt{node: w.node, kind: w.task.kind, failure: f, usage: end.Usage, started: t.TakenAt, finished: t.EndedAt})
}

// removeTasks removes the tasks whose end is in the log: while the run is parked no look would. What else has ended
// meanwhile keeps the run from parking.
func (r *Run) removeTasks(ctx context.Context) {
	if len(r.outside.recorded) == 0 {
		return
	}
	if _, err := wake.ReadTaskEnds(ctx, r.x.Pool, r.logged()); err != nil {
		r.log.Warn("remove tasks that are recorded", "error", err)
		return
	}
	r.outside.recorded = nil
}

// usageOf reads what a worker says that a task has used, of which the database has seen that it can be recorded.
func usageOf(t wake.TaskEnd) *pb.Usage {
	var u pb.Usage
	if t.Usage == nil || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(t.Usage, &u) != nil || !graph.ValidUsage(&u) {
		return nil
	}
	return &u
}

// takeBack has a node done by replicas again, whose kind is not declared any more.
func (r *Run) takeBack(w *wait) {
	r.waiting.uncount(w)
	r.forget(w.node, 0)
	r.miss(w.node)
}
