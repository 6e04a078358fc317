package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// cancelGrace is how long handlers may take to return after they were
// cancelled, before the run is let go without them.
const cancelGrace = time.Second

// ending says why the owner goroutine stopped.
type ending int

const (
	// endFinished: nothing is left to run, or a failure ends the run.
	endFinished ending = iota
	// endCancelled: somebody cancelled the run.
	endCancelled
	// endPaused: the run stops until a person resumes it.
	endPaused
	// endParked: the run waits, owned by nobody; it is parked already.
	endParked
	// endReleased: the run goes on elsewhere.
	endReleased
	// endLost: the run is not ours, or cannot be known to be.
	endLost
)

// Run is a hot run. All fields belong to the owner goroutine; handlers,
// flushers and whoever pokes it reach it through the mailbox only.
type Run struct {
	x       *Executor
	claimed ownership.Claimed
	log     *slog.Logger
	g       *graph.Graph
	tail    *runlog.Tail
	mail    *mailbox[event]
	// ctx is the parent of all handlers' contexts. launchCtx is that of the waits
	// before they start; it ends when nothing more may start.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	launchCtx  context.Context
	stopLaunch context.CancelFunc

	queue       []*graph.Node // ready, not started
	foreign     []*graph.Node // ready, of kinds this replica does not have
	crowd       []*graph.Node // ready, yet to get in line for a fleet-wide limit
	timers      map[*graph.Node]*time.Timer
	waits       map[*graph.Node]*wait
	marks       map[*graph.Node]*mark  // of at-most-once nodes, on the way to the log
	held        map[*graph.Node]*place // by a fleet-wide limit
	inFlight    int
	children    int // waits for child runs and tasks that are started, or about to be
	unconfirmed int // records sent to the log whose commit is not known yet
	busy        int // statements in the background

	// What is known from outside: the inbox of the run's row, as of inbox.Seen.
	inbox     wake.Inbox
	limits    wake.Limits
	taken     map[int64]bool // signals whose consumption is on the way to the log
	consumed  []int64        // signals whose consumption committed, to be marked at the next look
	recorded  []int64        // tasks whose end is in the log, to be removed at the next look
	newTasks  []*wait        // of which the task is yet to be made
	asking    bool           // whether a kind has been declared
	looking   bool
	lookAgain bool
	unseen    bool // a look that was begun has not succeeded yet

	draining    bool
	parked      bool
	cancelled   bool
	lost        error
	pauseReason string // a person or a limit wants the run paused
	stuck       string // why the run cannot go on until a person looks at it
	reason      string // of the end
	suspects    []graph.NodeID
	giveUp      <-chan time.Time
	linger      *time.Timer
}

// event is what reaches the owner goroutine; exactly one field group is set.
type event struct {
	attempt  *attempt    // a handler returned
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
	linger   bool        // the run has been idle for a while
	err      error       // with appended, inbox, childOf, tasks, moved
}

// Open returns the claimed run, for [Run.Drive] to execute.
func (x *Executor) Open(claimed ownership.Claimed) *Run {
	return &Run{
		x:       x,
		claimed: claimed,
		log:     x.Logger.With("run_id", claimed.RunID, "epoch", int64(claimed.Epoch)),
		g:       graph.New(claimed.Kind, &pb.Payload{Value: &pb.Payload_Json{Json: claimed.Input}}),
		tail:    x.Writer.Open(claimed.RunID, x.ReplicaID, claimed.Epoch, claimed.Head),
		mail:    newMailbox[event](),
		timers:  make(map[*graph.Node]*time.Timer),
		waits:   make(map[*graph.Node]*wait),
		marks:   make(map[*graph.Node]*mark),
		held:    make(map[*graph.Node]*place),
		taken:   make(map[int64]bool),
		limits:  claimed.Limits,
	}
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
	}
}

// drive rehydrates the run and executes it until there is a reason to stop.
func (r *Run) drive(claimCtx, workCtx context.Context) ending {
	r.ctx, r.cancel = context.WithCancelCause(workCtx)
	defer r.cancel(ErrRunEnded)
	r.launchCtx, r.stopLaunch = context.WithCancel(r.ctx)
	defer func() { r.stopLaunch() }()
	defer r.stopTimers()
	defer r.leaveLines()

	if end, ok := r.rehydrate(workCtx); !ok {
		return end
	}
	r.enqueue(r.g.Frontier())
	if len(r.childNodes()) > 0 {
		r.look()
	}
	return r.loop(claimCtx, workCtx)
}

// loop is the owner goroutine's: it applies what committed, launches what
// became ready, and stops when nothing is in flight and nothing may start.
func (r *Run) loop(claimCtx, workCtx context.Context) ending {
	claimDone, workDone := claimCtx.Done(), workCtx.Done()
	for {
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
			workDone = nil
			r.drain()
			if cause := context.Cause(workCtx); errors.Is(cause, ErrOwnershipLost) {
				r.lost = cause
			}
			r.giveUp = time.After(cancelGrace)
		case <-r.giveUp:
			r.log.Warn("handlers ignore their cancelled context; the run goes on without them", "in_flight", r.inFlight)
			return r.abandoned()
		}
	}
}

// abandoned says what becomes of a run whose handlers do not return.
func (r *Run) abandoned() ending {
	switch {
	case r.lost != nil:
		return endLost
	case r.cancelled && r.unconfirmed == 0:
		return endCancelled
	default:
		return endReleased
	}
}

func (r *Run) drain() {
	r.draining = true
	r.stopLaunch()
}

func (r *Run) handle(e event) {
	switch {
	case e.attempt != nil:
		r.inFlight--
		r.finishAttempt(e.attempt)
	case e.appended != nil:
		r.unconfirmed--
		var failed *runlog.TxError
		if e.ofTx != nil && errors.As(e.err, &failed) {
			r.txFailed(e.ofTx, failed)
			return
		}
		r.committed(e.seq, e.appended, e.err)
	case e.due != nil:
		r.timeCame(e.due)
	case e.inbox != nil:
		r.busy--
		r.received(e.inbox, e.err)
	case e.childOf != nil:
		r.busy--
		r.childStarted(e.childOf, e.err)
	case e.tasks != nil:
		r.busy--
		r.tasksStarted(e.tasks, e.err)
	case e.asked:
		r.busy--
		r.kindsRead()
	case e.moved != nil:
		r.busy--
		r.movedOver(e.moved, e.err)
	case e.mark != nil:
		r.appendMark(e.mark)
	case e.keyed != nil:
		r.busy--
		r.keyRead(e.keyed, e.err)
	case e.placed != nil:
		r.placed(e.placed)
	case e.poke != nil:
		r.poked(*e.poke)
	case e.linger:
		r.lingered()
	}
}

// timeCame is called when a backoff or a wait is over.
func (r *Run) timeCame(n *graph.Node) {
	if w := r.waits[n]; w != nil {
		r.timeOut(w)
		return
	}
	if _, ok := r.timers[n]; ok {
		delete(r.timers, n)
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
	r.unconfirmed++
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
	failing := r.g.Failure() != nil
	ready, err := r.g.Apply(int64(seq), rec)
	if err != nil {
		r.lose(err)
		return
	}
	switch now := r.g.Failure() != nil; {
	case now && !failing:
		r.stopLaunch()
	case failing && !now && !r.draining: // a node in flight attached a successor that handles the failure
		r.launchCtx, r.stopLaunch = context.WithCancel(r.ctx)
	}
	if started := rec.GetStarted(); started != nil {
		r.marked(r.g.Node(graph.NodeID(started.NodeId)))
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

// enqueue queues ready nodes in their order; those in a backoff wait for its
// end, and those whose kind is to wait begin to.
func (r *Run) enqueue(ready []*graph.Node) {
	for _, n := range ready {
		kind := r.x.kind(n.Kind)
		switch left := r.backoffLeft(n); {
		case r.cancelled || r.lost != nil:
		case IsWait(n.Kind):
			r.beginWait(n)
		case kind == nil:
			r.miss(n)
		case inDoubt(n, kind):
			r.doubt(n, kind, &Failure{Err: errInDoubt, Code: graph.CodeOutcomeUnknown})
		case left > 0:
			r.timers[n] = r.after(left, n)
		default:
			r.queue = append(r.queue, n)
		}
	}
}

func (r *Run) backoffLeft(n *graph.Node) time.Duration {
	if n.NotBefore == 0 {
		return 0
	}
	return time.UnixMicro(n.NotBefore).Sub(r.x.NowFunc())
}

// launch starts every queued node that the run's own limits allow, and names
// the limit that it met. A run that is to stop starts nothing more. Nodes of a kind
// with a fleet-wide limit get in line for it, no more than could start at once, and keep nothing else from it.
func (r *Run) launch() (limit string) {
	if r.queued() == 0 || r.stopping() {
		return ""
	}
	r.queue = r.admit(r.queue, &limit, func() bool { return r.inFlight < r.maxParallel() }, r.launchNode)
	r.crowd = r.admit(r.crowd, &limit, func() bool { return r.inFlight+len(r.held) < r.maxParallel() }, r.hold)
	r.startTasks()
	return limit
}

// admit starts those of some nodes, in their order and while there is room, that
// the run's own limits let start, and returns the others.
func (r *Run) admit(nodes []*graph.Node, limit *string, room func() bool, start func(*graph.Node)) []*graph.Node {
	var kept []*graph.Node
	for len(nodes) > 0 && room() {
		n := nodes[0]
		nodes = nodes[1:]
		if *limit == "" {
			*limit = r.limitReached()
		}
		if *limit != "" && !n.OwnLimits {
			kept = append(kept, n)
			continue
		}
		start(n)
	}
	if kept == nil {
		return nodes
	}
	return append(kept, nodes...)
}

func (r *Run) launchNode(n *graph.Node) {
	switch kind := r.x.kind(n.Kind); {
	case n.Kind == KindRun: // held at a limit before
		r.beginWait(n)
	case kind == nil: // it was declared until a moment ago
		r.miss(n)
	case kind.external:
		r.beginTask(n, kind)
	case r.limited(n):
		r.crowd = append(r.crowd, n)
	default:
		r.start(&attempt{node: n, kind: kind})
	}
}

// start makes an attempt in a goroutine of its own.
func (r *Run) start(a *attempt) {
	budget := r.budget()
	r.inFlight++
	go r.attempt(r.launchCtx, a, budget)
}

// queued is the number of nodes that wait for nothing but the run's own limits.
func (r *Run) queued() int { return len(r.queue) + len(r.crowd) }

func (r *Run) maxParallel() int {
	if r.limits.MaxParallel > 0 {
		return min(r.limits.MaxParallel, r.x.MaxParallelPerRun)
	}
	return r.x.MaxParallelPerRun
}

func (r *Run) stopping() bool {
	return r.draining || r.cancelled || r.pauseReason != "" || r.g.PauseReason() != "" || r.stuck != "" || r.lost != nil || r.g.Failure() != nil
}

// settled reports that nothing is in flight.
func (r *Run) settled() bool {
	return r.inFlight == 0 && (r.unconfirmed == 0 || r.lost != nil)
}

// verdict says what becomes of a run with nothing in flight, whose queued nodes
// the given limit keeps from starting; ok is false if it stays.
func (r *Run) verdict(limit string) (end ending, ok bool) {
	switch {
	case r.lost != nil:
		return endLost, true
	case r.cancelled:
		return endCancelled, true
	case r.stuck != "":
		r.reason = r.stuck
		return endPaused, true
	case r.g.Failure() != nil && r.busy > 0: // perhaps a child is being started, which is to be cancelled then
		return 0, false
	case r.g.Failure() != nil, r.g.Done():
		return endFinished, true
	case r.pauseReason != "":
		r.reason = r.pauseReason
		return endPaused, true
	case r.g.PauseReason() != "":
		r.reason = r.g.PauseReason()
		return endPaused, true
	case r.queued() > 0 && limit != "" && r.busy > 0 && !r.draining: // perhaps a child has ended, which is to be recorded
		return 0, false
	case r.queued() > 0 && limit != "" && r.awaitsTasks(): // in flight, and recorded before the pause
		return r.idle()
	case r.queued() > 0 && limit != "": // the same look at the clock that kept them from starting
		r.reason = limit
		return endPaused, true
	case r.onlyWaits():
		return r.idle()
	case len(r.foreign) > 0 && r.asking && !r.draining: // perhaps programs outside do them
		return 0, false
	default:
		return endReleased, true
	}
}

// lose stops everything: the log did not take a record, so memory is not to be trusted.
func (r *Run) lose(err error) {
	if r.lost != nil {
		return
	}
	r.lost = err
	r.cancel(ErrOwnershipLost)
	r.giveUp = time.After(cancelGrace)
	if errors.Is(err, runlog.ErrFenced) || errors.Is(err, runlog.ErrClosed) || errors.Is(err, wake.ErrNoRun) {
		r.log.Info("run lost", "error", err)
		return
	}
	r.log.Error("run dropped: its record was refused", "error", err)
}

// refused pauses the run: what there is to say of it can never be recorded, or what it waits for never be read,
// so that to go on, here or elsewhere, would be to do the same again for ever.
func (r *Run) refused(err error) {
	r.log.Error("the run cannot go on; it is paused", "error", err)
	r.stuck = "the run cannot go on: " + err.Error()
	r.stopLaunch()
}

func (r *Run) stopTimers() {
	for _, t := range r.timers {
		t.Stop()
	}
	for _, w := range r.waits {
		if w.timer != nil {
			w.timer.Stop()
		}
	}
	if r.linger != nil {
		r.linger.Stop()
	}
}
