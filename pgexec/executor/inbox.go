package executor

import (
	"context"
	"errors"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
)

// lookAgain is the wait before an inbox that could not be read is read again.
const lookAgain = 200 * time.Millisecond

// outside is what the run knows of what has reached it from outside: the inbox of
// its row, as of inbox.Seen, and what has come of that.
type outside struct {
	inbox    wake.Inbox
	limits   wake.Limits
	taken    map[int64]bool // signals whose consumption is on the way to the log
	consumed []int64        // signals whose consumption committed, to be marked at the next look
	recorded []int64        // tasks whose end is in the log, to be removed at the next look

	looking bool
	again   bool // to look once more when the look that was begun comes back
	unseen  bool // a look that was begun has not succeeded yet, or has not seen all it should
}

// beginLook reports whether a look may begin now; there is one at a time.
func (o *outside) beginLook() bool {
	if o.looking {
		o.again = true
		return false
	}
	o.looking, o.again, o.unseen = true, false, true
	return true
}

// marked forgets what a look marks. That saves the next owner a look at each; no harm if it fails.
func (o *outside) marked() { o.consumed, o.recorded = nil, nil }

// logged is what the log says that has been dealt with.
func (r *Run) logged() wake.Logged {
	return wake.Logged{
		RunID: r.claimed.RunID, Owner: r.x.ReplicaID, Epoch: r.claimed.Epoch, Head: runlog.Seq(r.g.Head()),
		Signals: r.outside.consumed, Tasks: r.outside.recorded,
	}
}

// takeIn replaces what was known by what a look has found.
func (o *outside) takeIn(in *wake.Inbox) { o.inbox, o.limits = *in, in.Limits }

// take gives a signal to whoever consumes it, once.
func (o *outside) take(signalID int64) bool {
	if o.taken[signalID] {
		return false
	}
	o.taken[signalID] = true
	return true
}

// Poke tells the run that its row's inbox is at that version, or, with 0, that
// something may have come in. It never blocks.
func (r *Run) Poke(version int64) { r.mail.put(event{poke: &version}) }

// Gone tells the run that the database says it is not ours at this epoch, and so never will be again. It never blocks.
func (r *Run) Gone() { r.mail.put(event{gone: true}) }

// poked reads the inbox if there is something in it that is not known yet.
func (r *Run) poked(version int64) {
	if version == 0 || version > r.outside.inbox.Seen {
		r.look()
	}
}

// look reads what has reached the run from outside: one statement, one snapshot.
func (r *Run) look() {
	if !r.outside.beginLook() {
		return
	}
	logged := r.logged()
	r.outside.marked()
	children, signals, tasks := r.waiting.childNodes(), r.waiting.onSignals(), r.waiting.onTasks()
	r.inBackground(func(ctx context.Context) event {
		in, err := wake.ReadInbox(ctx, r.x.Pool, logged, children)
		if err == nil && in.MoreSignals && len(signals) > 0 {
			in.Signals, err = wake.FindSignals(ctx, r.x.Pool, r.claimed.RunID, signals)
		}
		if err == nil && (tasks || len(logged.Tasks) > 0) {
			in.Tasks, err = wake.ReadTaskEnds(ctx, r.x.Pool, logged)
		}
		return event{inbox: &in, err: err}
	})
}

// received takes in what a look has found.
func (r *Run) received(in *wake.Inbox, err error) {
	r.outside.looking = false
	switch {
	case err == nil:
	case errors.Is(err, wake.ErrNoRun):
		r.lose(err)
		return
	case errors.Is(err, wake.ErrDamaged):
		r.refused(err)
		return
	default:
		if r.ctx.Err() == nil {
			r.log.Warn("read the run's inbox, trying again", "error", err)
			time.AfterFunc(lookAgain, func() { r.Poke(0) })
		}
		return
	}
	r.outside.unseen = false
	r.takeIn(in)
	if r.outside.again {
		r.look()
		return
	}
	for _, w := range r.waiting.waits {
		if w.overdue {
			r.timeOut(w)
		}
	}
}

func (r *Run) takeIn(in *wake.Inbox) {
	r.outside.takeIn(in)
	r.passOver()
	switch in.Wanted {
	case "cancel":
		r.cancelRun(in.WantedReason)
		return
	case "pause":
		r.stop.wanted = "paused"
		if in.WantedReason != "" {
			r.stop.wanted = "paused: " + in.WantedReason
		}
	default:
		r.stop.wanted = ""
	}
	r.matchAll()
	r.matchChildren()
	r.matchTasks()
}

// passOver has signals marked that the log has consumed and a former owner, or a look that failed, has not marked: many of them
// would hide others.
func (r *Run) passOver() {
	consumed := len(r.outside.consumed)
	for _, s := range r.outside.inbox.Signals {
		if r.g.Consumed(s.ID) {
			r.outside.consumed = append(r.outside.consumed, s.ID)
		}
	}
	if r.outside.inbox.MoreSignals && len(r.outside.consumed) > consumed {
		r.outside.unseen = true
		time.AfterFunc(lookAgain, func() { r.Poke(0) })
	}
}
