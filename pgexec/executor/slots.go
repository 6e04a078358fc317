package executor

import (
	"context"
	"errors"
)

// acquire waits for the slots that a node of this kind needs.
func (x *Executor) acquire(ctx context.Context, kind string) error {
	if k := x.perKind[kind]; k != nil {
		if err := k.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	if err := x.all.Acquire(ctx, 1); err != nil {
		if k := x.perKind[kind]; k != nil {
			k.Release(1)
		}
		return err
	}
	return nil
}

// tryAcquire takes the slots only if they are free and nobody waits for them.
func (x *Executor) tryAcquire(kind string) bool {
	k := x.perKind[kind]
	if k != nil && !k.TryAcquire(1) {
		return false
	}
	if x.all.TryAcquire(1) {
		return true
	}
	if k != nil {
		k.Release(1)
	}
	return false
}

func (x *Executor) release(kind string) {
	x.all.Release(1)
	if k := x.perKind[kind]; k != nil {
		k.Release(1)
	}
}

// start makes an attempt in a goroutine of its own, when this replica has slots for it. Until then the node is in
// flight, and has not begun.
func (r *Run) start(a *attempt) {
	if r.x.tryAcquire(a.node.Kind) {
		r.begin(a)
		return
	}
	ctx, leave := context.WithCancel(r.ctx)
	r.flight.attempts++
	r.flight.line[a] = leave
	go func() {
		err := r.x.acquire(ctx, a.node.Kind)
		if !r.mail.put(event{slots: a, err: err}) {
			r.giveBack(a, err)
		}
	}()
}

// begin calls the handler.
func (r *Run) begin(a *attempt) {
	budget := r.budget()
	r.flight.attempts++
	go r.attempt(a, budget)
}

var errHeld = errors.New("the run is to start no such node now")

// slotsCame begins an attempt that had to wait for its slots, if the run would still start the node.
func (r *Run) slotsCame(a *attempt, err error) {
	r.flight.line[a]()
	delete(r.flight.line, a)
	r.flight.attempts--
	if err == nil && (r.stopping() || !a.node.OwnLimits && r.limitOfBegun() != "") {
		r.x.release(a.node.Kind)
		err = errHeld
	}
	if err == nil {
		r.begin(a)
		return
	}
	a.place.release()
	a.aborted = true
	r.finishAttempt(a)
}

// giveBack gives back what an attempt got that does not begin, as the run has ended.
func (r *Run) giveBack(a *attempt, err error) {
	if err == nil {
		r.x.release(a.node.Kind)
	}
	a.place.release()
}

// recall takes nodes out of the line for slots that are not to start any more: all of a run that is to stop, and at a limit
// (G7) those without limits of their own. They are queued again when they come back.
func (r *Run) recall() {
	if len(r.flight.line) == 0 {
		return
	}
	all := r.stopping()
	if !all && r.limitOfBegun() == "" {
		return
	}
	for a, leave := range r.flight.line {
		if all || !a.node.OwnLimits {
			leave()
		}
	}
}

// limitOfBegun names the limit that is reached without the nodes that wait for slots; "" if there is none.
func (r *Run) limitOfBegun() string {
	return r.budgetWith(r.flight.nodes() - len(r.flight.line)).Reached
}
