package executor

import (
	"errors"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
)

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

// stop is why the run is to come to a stop here, beside what its log says.
type stop struct {
	draining  bool
	parked    bool
	cancelled bool
	lost      error
	wanted    string // why a person wants the run paused
	stuck     string // why the run cannot go on until a person looks at it
	reason    string // of the end
	suspects  []graph.NodeID
}

// ordered reports that nothing more is to start here.
func (s *stop) ordered() bool {
	return s.draining || s.over() || s.wanted != "" || s.stuck != ""
}

// over reports that the run ends here whatever its nodes do.
func (s *stop) over() bool { return s.cancelled || s.lost != nil }

// stopping reports that nothing more is to start.
func (r *Run) stopping() bool {
	return r.stop.ordered() || r.g.PauseReason() != "" || r.g.Failure() != nil
}

// settled reports that nothing is in flight.
func (r *Run) settled() bool {
	return r.flight.empty() || r.flight.attempts == 0 && r.stop.lost != nil
}

// verdict says what becomes of a run with nothing in flight, whose queued nodes
// the given limit keeps from starting; ok is false if it stays.
func (r *Run) verdict(limit string) (end ending, ok bool) {
	switch {
	case r.stop.lost != nil:
		return endLost, true
	case r.stop.cancelled:
		return endCancelled, true
	case r.stop.stuck != "":
		return r.pausedFor(r.stop.stuck)
	case r.g.Failure() != nil && r.flight.statements > 0: // perhaps a child is being started, which is to be cancelled then
		return 0, false
	case r.g.Failure() != nil, r.g.Done():
		return endFinished, true
	case r.stop.wanted != "":
		return r.pausedFor(r.stop.wanted)
	case r.g.PauseReason() != "":
		return r.pausedFor(r.g.PauseReason())
	case r.ready.queued() > 0 && limit != "" && r.flight.statements > 0 && !r.stop.draining: // perhaps a child has ended, which is to be recorded
		return 0, false
	case r.ready.queued() > 0 && limit != "" && r.waiting.onTasks(): // in flight, and recorded before the pause
		return r.idle()
	case r.ready.queued() > 0 && limit != "": // the same look at the clock that kept them from starting
		return r.pausedFor(limit)
	case r.onlyWaits():
		return r.idle()
	case len(r.ready.foreign) > 0 && r.ready.asking && !r.stop.draining: // perhaps programs outside do them
		return 0, false
	default:
		return endReleased, true
	}
}

func (r *Run) pausedFor(reason string) (end ending, ok bool) {
	r.stop.reason = reason
	return endPaused, true
}

// abandoned says what becomes of a run whose handlers do not return.
func (r *Run) abandoned() ending {
	switch {
	case r.stop.lost != nil:
		return endLost
	case r.stop.cancelled && r.flight.records == 0:
		return endCancelled
	default:
		return endReleased
	}
}

func (r *Run) drain() { r.stop.draining = true }

// lose stops everything: the log did not take a record, so memory is not to be trusted.
func (r *Run) lose(err error) {
	if r.stop.lost != nil {
		return
	}
	r.stop.lost = err
	r.cancelHandlers(ErrOwnershipLost)
	if lostToOthers(err) {
		r.log.Info("run lost", "error", err)
		return
	}
	r.log.Error("run dropped: its record was refused", "error", err)
}

// lostToOthers: somebody else has the run, or will have.
func lostToOthers(err error) bool {
	return errors.Is(err, runlog.ErrFenced) || errors.Is(err, runlog.ErrClosed) || errors.Is(err, wake.ErrNoRun)
}

// refused pauses the run: what there is to say of it can never be recorded, or what it waits for never be read,
// so that to go on, here or elsewhere, would be to do the same again for ever.
func (r *Run) refused(err error) {
	r.log.Error("the run cannot go on; it is paused", "error", err)
	r.stop.stuck = "the run cannot go on: " + err.Error()
}

// cancelRun stops everything; handlers get a moment to return.
func (r *Run) cancelRun(reason string) {
	if r.stop.cancelled {
		return
	}
	r.stop.cancelled, r.stop.reason = true, reason
	r.log.Info("run is being cancelled", "reason", reason, "in_flight", r.flight.attempts)
	r.stopTimers()
	r.cancelHandlers(ErrCancelled)
}
