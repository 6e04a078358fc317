package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// rehydrate rebuilds the graph from the log: the only time a hot run's log is
// read. ok is false when the run cannot go on here.
func (r *run) rehydrate(ctx context.Context) (end ending, ok bool) {
	if r.claimed.Fresh {
		if _, err := r.g.Apply(int64(r.claimed.Head), r.claimed.Record); err != nil {
			return r.corrupt(err), false
		}
		return 0, true
	}
	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		err := r.readLog(ctx)
		switch {
		case err == nil:
			return r.checkPoison()
		case isCorrupt(err):
			return r.corrupt(err), false
		}
		r.log.Warn("read the run's log, trying again", "error", err)
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrOwnershipLost) {
				return endLost, false
			}
			return endReleased, false
		case <-time.After(backoff):
		}
		r.g = graph.New(r.claimed.Kind, &pb.Payload{Value: &pb.Payload_Json{Json: r.claimed.Input}})
	}
}

func (r *run) readLog(ctx context.Context) error {
	return runlog.Read(ctx, r.x.Pool, r.claimed.RunID, 0, func(seq runlog.Seq, rec *pb.Record) error {
		_, err := r.g.Apply(int64(seq), rec)
		return err
	})
}

func isCorrupt(err error) bool {
	var corrupt *graph.CorruptError
	var gap *runlog.GapError
	return errors.As(err, &corrupt) || errors.As(err, &gap)
}

// corrupt pauses a run whose log this build cannot replay: going on could only do harm.
func (r *run) corrupt(err error) ending {
	r.log.Error("the run's log cannot be replayed; the run is paused", "error", err)
	r.reason = fmt.Sprintf("the log cannot be replayed: %v", err)
	return endPaused
}

// checkPoison stops a run whose owners keep dying without any progress (C18).
func (r *run) checkPoison() (end ending, ok bool) {
	deaths := r.g.DeathsWithoutProgress()
	if deaths < r.x.PoisonAfter {
		return 0, true
	}
	for _, n := range r.g.Frontier() {
		if len(r.suspects) == r.x.MaxParallelPerRun {
			break
		}
		r.suspects = append(r.suspects, n.ID)
	}
	r.reason = fmt.Sprintf("%d replicas died in a row while running this, suspected: %s", deaths, joinIDs(r.suspects, 20))
	r.log.Error("run paused", "reason", r.reason)
	return endPaused, false
}
