package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
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
	// endReleased: the run goes on elsewhere.
	endReleased
	// endLost: the run is not ours, or cannot be known to be.
	endLost
	// endPaused: the run stops until a person resumes it.
	endPaused
)

// run is a hot run. All fields belong to the owner goroutine; handlers and
// flushers reach it through the mailbox only.
type run struct {
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
	timers      map[*graph.Node]*time.Timer
	inFlight    int
	unconfirmed int // records sent to the log whose commit is not known yet
	draining    bool
	lost        error
	reason      string // of a pause
	suspects    []graph.NodeID
}

// event is what reaches the owner goroutine; exactly one field group is set.
type event struct {
	attempt  *attempt    // a handler returned
	appended *pb.Record  // a record committed, or did not
	seq      runlog.Seq  // with appended
	err      error       // with appended
	due      *graph.Node // a backoff is over
}

func newRun(x *Executor, claimed ownership.Claimed) *run {
	return &run{
		x:       x,
		claimed: claimed,
		log:     x.Logger.With("run_id", claimed.RunID, "epoch", int64(claimed.Epoch)),
		g:       graph.New(claimed.Kind, &pb.Payload{Value: &pb.Payload_Json{Json: claimed.Input}}),
		tail:    x.Writer.Open(claimed.RunID, x.ReplicaID, claimed.Epoch, claimed.Head),
		mail:    newMailbox[event](),
		timers:  make(map[*graph.Node]*time.Timer),
	}
}

// drive rehydrates the run and executes it until there is a reason to stop.
func (r *run) drive(claimCtx, workCtx context.Context) ending {
	r.ctx, r.cancel = context.WithCancelCause(workCtx)
	defer r.cancel(ErrRunEnded)
	r.launchCtx, r.stopLaunch = context.WithCancel(r.ctx)
	defer func() { r.stopLaunch() }()
	defer r.stopTimers()

	if end, ok := r.rehydrate(workCtx); !ok {
		return end
	}
	r.enqueue(r.g.Frontier())
	return r.loop(claimCtx, workCtx)
}

// loop is the owner goroutine's: it applies what committed, launches what
// became ready, and stops when nothing is in flight and nothing may start.
func (r *run) loop(claimCtx, workCtx context.Context) ending {
	claimDone, workDone := claimCtx.Done(), workCtx.Done()
	var giveUp <-chan time.Time
	for {
		r.launch()
		if r.settled() {
			return r.verdict()
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
			giveUp = time.After(cancelGrace)
		case <-giveUp:
			r.log.Warn("handlers ignore their cancelled context; the run goes on without them", "in_flight", r.inFlight)
			if r.lost != nil {
				return endLost
			}
			return endReleased
		}
	}
}

func (r *run) drain() {
	r.draining = true
	r.stopLaunch()
}

func (r *run) handle(e event) {
	switch {
	case e.attempt != nil:
		r.inFlight--
		r.finishAttempt(e.attempt)
	case e.appended != nil:
		r.unconfirmed--
		r.committed(e.seq, e.appended, e.err)
	case e.due != nil:
		delete(r.timers, e.due)
		r.queue = append(r.queue, e.due)
	}
}

// append sends a record to the log. Nothing that depends on it happens before
// its commit comes back through the mailbox.
func (r *run) append(rec *pb.Record) error {
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
func (r *run) committed(seq runlog.Seq, rec *pb.Record, err error) {
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
	if failed := rec.GetAttemptFailed(); failed != nil {
		ready = append(ready, r.g.Node(graph.NodeID(failed.NodeId)))
	}
	r.enqueue(ready)
}

// enqueue queues ready nodes in their order; those in a backoff wait for its end.
func (r *run) enqueue(ready []*graph.Node) {
	for _, n := range ready {
		switch wait := r.backoffLeft(n); {
		case r.x.Kinds[n.Kind] == nil:
			r.foreign = append(r.foreign, n)
		case wait > 0:
			r.timers[n] = time.AfterFunc(wait, func() { r.mail.put(event{due: n}) })
		default:
			r.queue = append(r.queue, n)
		}
	}
}

func (r *run) backoffLeft(n *graph.Node) time.Duration {
	if n.NotBefore == 0 {
		return 0
	}
	return time.UnixMicro(n.NotBefore).Sub(r.x.NowFunc())
}

// launch starts every queued node that the run's own limit allows. A run that
// is draining, lost or failing starts nothing more.
func (r *run) launch() {
	if r.stopping() {
		return
	}
	started := 0
	for _, n := range r.queue {
		if r.inFlight >= r.x.MaxParallelPerRun {
			break
		}
		started++
		r.inFlight++
		go r.attempt(r.launchCtx, n)
	}
	r.queue = r.queue[started:]
}

func (r *run) stopping() bool {
	return r.draining || r.lost != nil || r.g.Failure() != nil
}

// settled reports that nothing is in flight and nothing will start here.
func (r *run) settled() bool {
	if r.inFlight > 0 || (r.unconfirmed > 0 && r.lost == nil) {
		return false
	}
	return r.stopping() || (len(r.queue) == 0 && len(r.timers) == 0)
}

// verdict says what becomes of a run that stopped.
func (r *run) verdict() ending {
	switch {
	case r.lost != nil:
		return endLost
	case r.g.Failure() != nil, r.g.Done():
		return endFinished
	default:
		return endReleased
	}
}

// lose stops everything: the log did not take a record, so memory is not to be trusted.
func (r *run) lose(err error) {
	if r.lost != nil {
		return
	}
	r.lost = err
	r.cancel(ErrOwnershipLost)
	if errors.Is(err, runlog.ErrFenced) || errors.Is(err, runlog.ErrClosed) {
		r.log.Info("run lost", "error", err)
		return
	}
	r.log.Error("run dropped: its record was refused", "error", err)
}

func (r *run) stopTimers() {
	for _, t := range r.timers {
		t.Stop()
	}
}
