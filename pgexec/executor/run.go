package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/usage"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Run is a hot run. All fields belong to the owner goroutine; handlers,
// flushers and whoever pokes it reach it through the mailbox only.
//
// A node that the graph calls ready is in exactly one place: in ready, in waiting,
// or in flight, with its attempt or with the record that ends it. outside is what has
// reached the run from elsewhere, stop why it is to come to a stop here.
type Run struct {
	x       *Executor
	claimed ownership.Claimed
	log     *slog.Logger
	g       *graph.Graph
	tail    *runlog.Tail
	meter   *usage.Meter
	mail    *mailbox[event]
	contexts
	ready   ready
	waiting waiting
	flight  flight
	outside outside
	stop    stop
	linger  *time.Timer
}

// event is what reaches the owner goroutine; exactly one field group is set.
type event struct {
	attempt  *attempt    // a handler returned
	slots    *attempt    // there are slots for it, or it has left the line for them
	appended *pb.Record  // a record committed, or did not
	seq      runlog.Seq  // with appended
	ofTx     *attempt    // with appended, if the record was to commit in its transaction
	due      *graph.Node // a backoff or a wait is over
	inbox    *wake.Inbox // a look came back
	childOf  *wait       // a child was started, or was not
	tasks    *tasksStart // tasks were made, or were not
	asked    bool        // the declared kinds were read
	moved    *moved      // a wait's input or output was read from a blob, or kept
	mark     *mark       // an at-most-once node is about to start
	keyed    *place      // the key of a node's fleet-wide limit is known
	placed   *place      // a fleet-wide limit lets a node start
	poke     *int64      // the inbox may have changed
	gone     bool        // the database says that the run is not ours
	linger   bool        // the run has been idle for a while
	err      error       // with slots, appended, inbox, childOf, tasks, moved
}

// Open returns the claimed run, for [Run.Drive] to execute.
func (x *Executor) Open(claimed ownership.Claimed) *Run {
	return &Run{
		x:       x,
		claimed: claimed,
		log:     x.Logger.With("run_id", claimed.RunID, "epoch", int64(claimed.Epoch)),
		g:       newGraph(claimed),
		tail:    x.Writer.Open(claimed.RunID, x.ReplicaID, claimed.Epoch, claimed.Head),
		meter:   x.Usage.Open(claimed.RunID, claimed.Epoch),
		mail:    newMailbox[event](),
		waiting: newWaiting(),
		flight:  newFlight(),
		outside: outside{limits: claimed.Limits, taken: make(map[int64]bool)},
	}
}

// newGraph returns the graph of a run without its log.
func newGraph(claimed ownership.Claimed) *graph.Graph {
	input := &pb.Payload{Value: &pb.Payload_Json{Json: claimed.Input}}
	if claimed.InputApart {
		input = inputApart
	}
	return graph.New(claimed.Kind, input)
}

// Drive executes the run until it is finished, cancelled, paused, parked,
// released or lost. When claimCtx ends no further node starts, and the run is
// let go as soon as its last node in flight is recorded. When workCtx ends its
// handlers are cancelled with workCtx's cause and the run is let go at once, or
// just dropped if the cause is [ErrOwnershipLost].
func (r *Run) Drive(claimCtx, workCtx context.Context) {
	r.conclude(workCtx, r.drive(claimCtx, workCtx))
	for _, e := range r.mail.close() {
		if e.attempt != nil {
			rollback(e.attempt.tx)
		}
		if e.slots != nil {
			r.giveBack(e.slots, e.err)
		}
	}
}

// drive rehydrates the run and executes it until there is a reason to stop.
func (r *Run) drive(claimCtx, workCtx context.Context) ending {
	r.contexts = newContexts(workCtx)
	defer r.contexts.end()
	defer r.stopTimers()
	defer r.waiting.leaveLines()

	if end, ok := r.rehydrate(workCtx); !ok {
		return end
	}
	frontier := r.g.Frontier()
	r.ready.claimed(frontier)
	r.enqueue(frontier)
	if len(r.waiting.childNodes()) > 0 {
		r.look()
	}
	return r.loop(claimCtx, workCtx)
}

// loop is the owner goroutine's: it applies what committed, launches what
// became ready, and stops when nothing is in flight and nothing may start.
func (r *Run) loop(claimCtx, workCtx context.Context) ending {
	claimDone, workDone := claimCtx.Done(), workCtx.Done()
	for {
		if workDone != nil && workCtx.Err() != nil { // before anything starts again that this has cut off
			workDone = nil
			r.workEnds(context.Cause(workCtx))
		}
		limit := r.launch()
		if r.settled() {
			if end, ok := r.verdict(limit); ok {
				return end
			}
		}
		select {
		case <-r.mail.ready:
			for _, e := range r.mail.take() {
				r.handle(e)
			}
		case <-claimDone:
			claimDone = nil
			r.drain()
		case <-workDone:
		case <-r.giveUp:
			r.log.Warn("what was cancelled does not end; the run goes on without it", "handlers", r.flight.attempts, "records", r.flight.records)
			return r.abandoned()
		}
	}
}

// workEnds has the run let go at once.
func (r *Run) workEnds(cause error) {
	r.drain()
	if errors.Is(cause, ErrOwnershipLost) {
		r.stop.lost = cause
	}
	r.cancelHandlers(cause)
}

func (r *Run) handle(e event) {
	switch {
	case e.attempt != nil:
		r.flight.attempts--
		r.finishAttempt(e.attempt)
	case e.slots != nil:
		r.slotsCame(e.slots, e.err)
	case e.appended != nil:
		r.flight.back(e.appended)
		var failed *runlog.TxError
		if e.ofTx != nil && errors.As(e.err, &failed) {
			r.txFailed(e.ofTx, failed)
			return
		}
		r.committed(e.seq, e.appended, e.err)
	case e.due != nil:
		r.timeCame(e.due)
	case e.inbox != nil:
		r.flight.statements--
		r.received(e.inbox, e.err)
	case e.childOf != nil:
		r.flight.statements--
		r.childStarted(e.childOf, e.err)
	case e.tasks != nil:
		r.flight.statements--
		r.tasksStarted(e.tasks, e.err)
	case e.asked:
		r.flight.statements--
		r.kindsRead()
	case e.moved != nil:
		r.flight.statements--
		r.movedOver(e.moved, e.err)
	case e.mark != nil:
		r.appendMark(e.mark)
	case e.keyed != nil:
		r.flight.statements--
		r.keyRead(e.keyed, e.err)
	case e.placed != nil:
		r.placed(e.placed)
	case e.poke != nil:
		r.poked(*e.poke)
	case e.gone:
		r.lose(runlog.ErrFenced)
	case e.linger:
		r.lingered()
	}
}

// timeCame is called when a backoff or a wait is over.
func (r *Run) timeCame(n *graph.Node) {
	if w := r.waiting.waits[n]; w != nil {
		r.timeOut(w)
		return
	}
	if r.waiting.timeCame(n) {
		r.enqueue([]*graph.Node{n})
	}
}

// append sends a record to the log. Nothing that depends on it happens before
// its commit comes back through the mailbox.
func (r *Run) append(rec *pb.Record) error {
	raw, err := runlog.Encode(rec)
	if err != nil {
		return err
	}
	r.flight.sent(rec)
	r.tail.Append(raw, func(seq runlog.Seq, err error) {
		r.mail.put(event{appended: rec, seq: seq, err: err})
	})
	return nil
}

// committed applies a record that is durable now and queues what it made ready.
func (r *Run) committed(seq runlog.Seq, rec *pb.Record, err error) {
	if err != nil {
		r.lose(err)
		return
	}
	ready, err := r.g.Apply(int64(seq), rec)
	if err != nil {
		r.lose(err)
		return
	}
	r.meter.Set(r.g.Usage())
	if started := rec.GetStarted(); started != nil {
		r.flight.marked(r.g.Node(graph.NodeID(started.NodeId)))
	}
	if failed := rec.GetAttemptFailed(); failed != nil {
		n := r.g.Node(graph.NodeID(failed.NodeId))
		r.forget(n, failed.SignalId)
		ready = append(ready, n)
	}
	if node := rec.GetNode(); node != nil {
		r.forget(r.g.Node(graph.NodeID(node.Id)), node.SignalId)
	}
	r.enqueue(ready)
}

func (r *Run) stopTimers() {
	r.waiting.stopTimers()
	if r.linger != nil {
		r.linger.Stop()
	}
}
