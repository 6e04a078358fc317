package executor

import (
	"context"
	"errors"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// conclusionRetry paces the claims of a run that cannot be ended, paused or gone on with: its row or its log is refused by
// the database, which may last.
var conclusionRetry = RetryPolicy{MinBackoff: time.Second, MaxBackoff: 5 * time.Minute}

// concludeTimeout bounds the statement that gives a run up. If it cannot run,
// the replica's audit or its successor's does the same later.
const concludeTimeout = 10 * time.Second

// lastTimeout is what is left of it once a drain's deadline has come: what is locked for longer goes back when the session closes, or
// later, and the platform kills soon.
const lastTimeout = time.Second

// conclude does in the database what the ending asks for. Whatever cannot be
// done leaves the run with this owner; releasing it then is always safe, since
// the statement names owner and epoch. What the database has refused it may
// refuse again: the run waits before it is claimed the next time (C27).
func (r *Run) conclude(workCtx context.Context, end ending) {
	if errors.Is(r.stop.lost, ErrOwnershipLost) || errors.Is(context.Cause(workCtx), ErrOwnershipLost) {
		return // the session is gone; whoever finds it dead puts the run back
	}
	var err error
	switch end {
	case endFinished:
		if err = r.cancelChildren(workCtx); err == nil {
			err = inTime(workCtx, r.finish)
		}
	case endCancelled:
		err = inTime(workCtx, r.finishCancelled)
	case endPaused:
		err = inTime(workCtx, r.pause)
	case endReleased:
		r.release(workCtx, nil)
	case endLost:
		r.release(workCtx, refusal(workCtx, r.stop.lost))
	case endParked:
	}
	switch {
	case err == nil, errors.Is(context.Cause(workCtx), ErrOwnershipLost):
		return
	case errors.Is(err, runlog.ErrChanged):
		r.log.Info("something has reached the run at its end, releasing it")
	case !errors.Is(err, runlog.ErrFenced):
		r.log.Error("conclude run, releasing it", "error", err)
	}
	r.release(workCtx, refusal(workCtx, err))
}

// refusal returns an error of which there may be more when the run is claimed again; nil for any other.
func refusal(workCtx context.Context, err error) error {
	cutOff := errors.Is(err, context.Cause(workCtx)) || errors.Is(err, context.Canceled)
	if cutOff || errors.Is(err, runlog.ErrChanged) || lostToOthers(err) {
		return nil
	}
	return err
}

// rest is how long a run waits that was refused, with so many claims without progress: longer each time, since the claims are of that,
// unless the refusal is about to pass. Then they may be of anything, as of signals that nobody has waited for.
func rest(refused error, claims int) time.Duration {
	if runlog.Passing(refused) {
		claims = 1
	}
	return conclusionRetry.Backoff(uint32(claims))
}

// inTime gives a step concludeTimeout, and lastTimeout from the end of workCtx on.
func inTime(workCtx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(workCtx), concludeTimeout)
	defer cancel()
	defer context.AfterFunc(workCtx, func() { time.AfterFunc(lastTimeout, cancel) })()
	return step(ctx)
}

// finish appends the last record and sets the run's status in one statement.
func (r *Run) finish(ctx context.Context) error {
	fin := &pb.Finished{Status: pb.RunStatus_RUN_STATUS_SUCCEEDED, AtUs: r.x.NowFunc().UnixMicro()}
	params := runlog.FinishParams{Status: "succeeded"}
	if failed := r.g.Failure(); failed != nil {
		fin.Status, params.Status = pb.RunStatus_RUN_STATUS_FAILED, "failed"
		fin.Error, fin.ErrorNodeId = failed.Err, string(failed.ID)
		params.Error = "node " + string(failed.ID) + ": " + failed.Err.GetMessage()
	} else if n := r.g.Result(); n != nil {
		fin.ResultSeq = n.Seq
		params.Result, params.ResultSeq = viewOf(n.Output), runlog.Seq(n.Seq)
	}
	raw, err := runlog.Encode(&pb.Record{Body: &pb.Record_Finished{Finished: fin}})
	if err != nil {
		return err
	}
	params.Record = raw
	if err := r.end(ctx, params); err != nil {
		return err
	}
	r.log.Debug("run finished", "status", params.Status, "nodes", r.g.Len())
	return nil
}

// cancelChildren cancels the runs that this one, which failed, still waits for.
// It comes before the end is recorded: after a crash in between it is done again.
// There may be thousands: each has its own time, and a drain's deadline ends the row.
func (r *Run) cancelChildren(workCtx context.Context) error {
	if r.g.Failure() == nil {
		return nil
	}
	reason := "parent run " + r.claimed.RunID.String() + " failed"
	for _, n := range r.g.Frontier() {
		if n.Kind != KindRun {
			continue
		}
		if workCtx.Err() != nil {
			return context.Cause(workCtx)
		}
		child := ChildID(r.claimed.RunID, n.ID)
		err := inTime(workCtx, func(ctx context.Context) error {
			queue, err := wake.CancelChild(ctx, r.x.Pool, child, reason)
			if err == nil && queue != "" {
				r.x.Writer.TellOwner(child)
				r.x.Writer.TellQueues([]string{queue})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// end gives the run's row its last status, with what the run has spent.
func (r *Run) end(ctx context.Context, params runlog.FinishParams) error {
	spent := r.g.Usage()
	params.InputTokens, params.OutputTokens = spent.InputTokens, spent.OutputTokens
	params.CostNanoUSD, params.Unpriced, params.Nodes = spent.CostNanoUSD, spent.Unpriced, spent.Nodes
	params.MayAsk = r.waiting.forApproval()
	err := r.tail.Finish(ctx, params)
	if err == nil {
		r.meter.Settle()
	}
	return err
}

func (r *Run) finishCancelled(ctx context.Context) error {
	message := "cancelled"
	if r.stop.reason != "" {
		message = "cancelled: " + r.stop.reason
	}
	raw, err := runlog.Encode(&pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{
		Status: pb.RunStatus_RUN_STATUS_CANCELLED,
		Error:  &pb.Error{Message: truncate(message, maxErrorMessage), Code: "cancelled"},
		AtUs:   r.x.NowFunc().UnixMicro(),
	}}})
	if err != nil {
		return err
	}
	return r.end(ctx, runlog.FinishParams{Record: raw, Status: "cancelled", Error: message})
}

// pause stops the run if nothing has reached it that the decision does not know:
// a resume or a raised limit that came meanwhile would be lost on a paused run.
func (r *Run) pause(ctx context.Context) error {
	control := &pb.Control{
		Kind:    pb.ControlKind_CONTROL_KIND_PAUSED,
		Reason:  r.stop.reason,
		AtUs:    r.x.NowFunc().UnixMicro(),
		NodeIds: idStrings(r.stop.suspects),
	}
	raw, err := runlog.Encode(&pb.Record{Body: &pb.Record_Control{Control: control}})
	if err != nil {
		return err
	}
	seen := r.seen()
	err = r.end(ctx, runlog.FinishParams{Record: raw, Status: "paused", Reason: r.stop.reason, Inbox: &seen})
	if err == nil {
		r.log.Info("run paused", "reason", r.stop.reason)
	}
	return err
}

// release gives the run back to the queue: with a wake, or, when only kinds
// that this replica does not have are left, for a replica that has them. One that was
// refused waits for longer each time.
func (r *Run) release(workCtx context.Context, refused error) {
	held := []ownership.Held{{RunID: r.claimed.RunID, Epoch: r.claimed.Epoch}}
	var opts *ownership.ReleaseOpts
	if refused != nil {
		opts = &ownership.ReleaseOpts{After: rest(refused, r.g.ClaimsWithoutProgress()), Reason: truncate("tried again: "+refused.Error(), maxErrorMessage)}
	} else if kinds := r.ready.missingKinds(); len(kinds) > 0 && r.stop.lost == nil {
		r.log.Info("run waits for a replica with other kinds", "kinds", kinds)
		opts = &ownership.ReleaseOpts{WaitingKinds: kinds}
	}
	var released ownership.Released
	err := inTime(workCtx, func(ctx context.Context) (err error) {
		released, err = ownership.Release(ctx, r.x.Pool, r.x.ReplicaID, held, opts)
		return err
	})
	r.x.Writer.TellQueues(released.Queues)
	if err != nil && !errors.Is(context.Cause(workCtx), ErrOwnershipLost) {
		r.log.Warn("release run", "error", err)
	}
}

func idStrings(ids []graph.NodeID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
