package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// rehydrate rebuilds the graph from the log, the only time a hot run's log is
// read, and takes in what has reached the run from outside. ok is false when
// the run cannot go on here.
func (r *Run) rehydrate(ctx context.Context) (end ending, ok bool) {
	if r.claimed.Fresh {
		if _, err := r.g.Apply(int64(r.claimed.Head), r.claimed.Record); err != nil {
			return r.corrupt(err), false
		}
	} else if end, ok := r.retrying(ctx, "read the run's log", r.readLog); !ok {
		return end, false
	}
	r.meter.Set(r.g.Usage())
	if end, ok := r.recordResumption(ctx); !ok {
		return end, false
	}
	if r.claimed.Inbox > 0 {
		if end, ok := r.retrying(ctx, "read the run's inbox", r.readInbox); !ok {
			return end, false
		}
	}
	if r.stop.cancelled {
		return endCancelled, false
	}
	return r.checkPoison(ctx)
}

// retrying repeats a read until it succeeds or the run has to be let go.
func (r *Run) retrying(ctx context.Context, what string, read func(context.Context) error) (end ending, ok bool) {
	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		err := read(ctx)
		switch {
		case err == nil:
			return 0, true
		case isCorrupt(err):
			return r.corrupt(err), false
		case errors.Is(err, wake.ErrNoRun):
			r.lose(err)
			return endLost, false
		case ctx.Err() == nil:
			r.log.Warn(what+", trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return r.stopped(ctx), false
		case <-time.After(backoff):
		}
	}
}

func (r *Run) readInbox(ctx context.Context) error {
	in, err := wake.ReadInbox(ctx, r.x.Pool, wake.Logged{RunID: r.claimed.RunID}, nil)
	if err == nil {
		r.takeIn(&in)
	}
	return err
}

// recordResumption appends what a claim of a paused or failed run means: a
// person resumed or retried it. Deriving this from the log makes it safe to repeat.
func (r *Run) recordResumption(ctx context.Context) (end ending, ok bool) {
	control := &pb.Control{AtUs: r.x.NowFunc().UnixMicro()}
	switch {
	case r.g.Finished() != nil:
		control.Kind = pb.ControlKind_CONTROL_KIND_RETRIED
		for _, n := range r.g.Failures() {
			control.NodeIds = append(control.NodeIds, string(n.ID))
		}
	case r.g.Paused():
		control.Kind = pb.ControlKind_CONTROL_KIND_RESUMED
	default:
		return 0, true
	}
	rec := &pb.Record{Body: &pb.Record_Control{Control: control}}
	raw, err := runlog.Encode(rec)
	if err != nil {
		return r.corrupt(err), false
	}
	type answer struct {
		seq runlog.Seq
		err error
	}
	done := make(chan answer, 1)
	r.tail.Append(raw, func(seq runlog.Seq, err error) { done <- answer{seq, err} })
	select {
	case <-ctx.Done():
		r.stop.lost = context.Cause(ctx)
		return endLost, false
	case a := <-done:
		if a.err == nil {
			_, a.err = r.g.Apply(int64(a.seq), rec)
		}
		if a.err != nil {
			r.lose(a.err)
			return endLost, false
		}
	}
	return 0, true
}

// maxExpected bounds for how many nodes room is made before they are read.
const maxExpected = 1 << 16

func (r *Run) readLog(ctx context.Context) error {
	r.g = newGraph(r.claimed)
	r.g.Grow(int(min(r.claimed.Head, maxExpected)))
	return runlog.Read(ctx, r.x.Pool, r.claimed.RunID, 0, func(seq runlog.Seq, rec *pb.Record) error {
		_, err := r.g.Apply(int64(seq), rec)
		return err
	})
}

func isCorrupt(err error) bool {
	var corrupt *graph.CorruptError
	var gap *runlog.GapError
	var decode *runlog.DecodeError
	return errors.As(err, &corrupt) || errors.As(err, &gap) || errors.As(err, &decode) || errors.Is(err, wake.ErrDamaged)
}

// corrupt pauses a run whose log this build cannot replay: going on could only do harm.
func (r *Run) corrupt(err error) ending {
	r.log.Error("the run's log cannot be replayed; the run is paused", "error", err)
	r.stop.reason = fmt.Sprintf("the log cannot be replayed: %v", err)
	return endPaused
}

// checkPoison stops a run whose owners keep dying without any progress (C18).
func (r *Run) checkPoison(ctx context.Context) (end ending, ok bool) {
	dead := r.g.DeathsWithoutProgress()
	if len(dead) < r.x.PoisonAfter {
		return 0, true
	}
	if len(dead) < maxLosses*r.x.PoisonAfter {
		poisoned, err := r.poisoned(ctx, dead)
		if err != nil {
			return r.stopped(ctx), false
		}
		if !poisoned {
			return 0, true
		}
	}
	r.stop.suspects = r.suspects()
	r.stop.reason = fmt.Sprintf("%d replicas died in a row while running this", len(dead))
	if len(r.stop.suspects) > 0 {
		r.stop.reason += ", suspected: " + joinIDs(r.stop.suspects, 20)
	}
	r.log.Error("run paused", "reason", r.stop.reason)
	return endPaused, false
}

// suspects are the nodes that may have been in flight when the run's last owner died: those that only wait run nothing here.
func (r *Run) suspects() (ids []graph.NodeID) {
	for _, n := range r.g.Frontier() {
		kind := r.x.kind(n.Kind)
		switch {
		case len(ids) == r.x.MaxParallelPerRun:
			return ids
		case IsWait(n.Kind), kind != nil && kind.external, r.backoffLeft(n) > 0:
		default:
			ids = append(ids, n.ID)
		}
	}
	return ids
}

const (
	// maxLosses is how many times as many sessions as processes a run may bring to their end: what a restart of the database
	// ends is not the run's fault, until it looks like that.
	maxLosses = 10
	// returnTime is how long processes that lost their session have to open another one and say so.
	returnTime = 5 * time.Second
)

// poisoned reports that too many of the dead were processes that have not come back. An error says that there is no time to find out.
func (r *Run) poisoned(ctx context.Context, dead []int32) (bool, error) {
	for began := time.Now(); ; {
		outlived, err := ownership.CountOutlived(ctx, r.x.Pool, dead)
		switch {
		case err == nil && len(dead)-outlived < r.x.PoisonAfter:
			return false, nil
		case err == nil && time.Since(began) > returnTime:
			return true, nil
		case err != nil && ctx.Err() == nil:
			r.log.Warn("look for replicas that are back, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// stopped is the end of a run whose work was stopped before it went on.
func (r *Run) stopped(ctx context.Context) ending {
	if errors.Is(context.Cause(ctx), ErrOwnershipLost) {
		return endLost
	}
	return endReleased
}
