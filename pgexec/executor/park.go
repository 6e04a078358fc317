package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
)

// idle is the verdict on a run that only waits: it stays in memory for a
// little while, or until its next time if that is near, and is then parked. A
// drain parks it at once, so that no other replica has to take it over to do the
// same. One with nodes of kinds that this replica does not have is never parked:
// it goes to a replica that has them.
func (r *Run) idle() (end ending, ok bool) {
	switch {
	case r.stop.parked || r.stop.draining && r.flight.statements == 0 && len(r.ready.foreign) == 0 && r.park():
		return endParked, true
	case r.stop.draining:
		return endReleased, true
	case r.flight.statements > 0: // a look or a child's start will tell more
		return 0, false
	case len(r.ready.foreign) > 0:
		return endReleased, true
	case r.linger == nil:
		r.linger = time.AfterFunc(r.x.Linger, func() { r.mail.put(event{linger: true}) })
	}
	return 0, false
}

// lingered parks the run if it still only waits, and not for a near time.
func (r *Run) lingered() {
	r.linger = nil
	if r.stopping() || !r.settled() || r.flight.statements > 0 || r.outside.unseen || len(r.ready.foreign) > 0 || r.waiting.len() == 0 {
		return
	}
	if len(r.ready.queue) > 0 && !r.waiting.onTasks() { // with them, a limit holds what is queued
		return
	}
	if due := r.waiting.nextDueUs(); due != 0 && r.until(due) < r.x.Linger {
		return
	}
	if r.stop.parked = r.park(); !r.stop.parked {
		r.look()
	}
}

// onlyWaits reports that there is something to wait for and nothing to start.
func (r *Run) onlyWaits() bool {
	return len(r.ready.queue) == 0 && r.waiting.len() > 0
}

// park gives up ownership if nothing has reached the run since the last look. It
// is called with nothing in flight, so that all the log says is in the graph. A
// look that failed leaves unknown what had reached the run before.
func (r *Run) park() bool {
	if r.outside.unseen || r.waiting.unstarted() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), statementTimeout)
	defer cancel()
	r.removeTasks(ctx)
	spent := r.g.Usage()
	parked, err := wake.Park(ctx, r.x.Pool, wake.ParkParams{
		RunID:  r.claimed.RunID,
		Owner:  r.x.ReplicaID,
		Epoch:  r.claimed.Epoch,
		Inbox:  r.seen(),
		DueUs:  r.waiting.nextDueUs(),
		Held:   r.waiting.lines(),
		Reason: r.waitReason(),
		MayAsk: r.waiting.forApproval(),

		InputTokens: spent.InputTokens, OutputTokens: spent.OutputTokens,
		CostNanoUSD: spent.CostNanoUSD, Unpriced: spent.Unpriced, Nodes: spent.Nodes,
	})
	switch {
	case errors.Is(err, runlog.ErrFenced): // also when an earlier call did park it and its answer was lost
		r.lose(err)
	case err != nil:
		r.log.Warn("park run", "error", err)
	case parked:
		r.meter.Settle()
	}
	return parked
}

// seen is the version of the run's inbox that its owner knows.
func (r *Run) seen() int64 { return max(r.outside.inbox.Seen, r.claimed.Inbox) }

// waitReason says for people what the run waits for.
func (r *Run) waitReason() string {
	const most = 5
	var parts []string
	for _, n := range slices.SortedFunc(maps.Keys(r.waiting.waits), byID) {
		w := r.waiting.waits[n]
		if w.asks {
			parts = append(parts, fmt.Sprintf("the outcome of %s is unknown: a signal %q to it settles that", n.ID, SignalOutcome))
			continue
		}
		switch {
		case w.task != nil:
			parts = append(parts, fmt.Sprintf("%s waits for a worker of kind %q", n.ID, n.Kind))
		case n.Kind == KindSleep:
			parts = append(parts, fmt.Sprintf("%s sleeps until %s", n.ID, utc(w.dueUs)))
		case n.Kind == KindSignal:
			parts = append(parts, fmt.Sprintf("%s waits for signal %q", n.ID, head(w.signal.Name))+w.about())
		case n.Kind == KindApproval:
			parts = append(parts, fmt.Sprintf("%s waits for an approval", n.ID)+w.about())
		case n.Kind == KindRun:
			parts = append(parts, fmt.Sprintf("%s waits for run %s", n.ID, w.child))
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(r.waiting.timers), byID) {
		parts = append(parts, fmt.Sprintf("%s is tried again at %s", n.ID, utc(n.NotBefore))+afterColon(n.Failure.GetMessage()))
	}
	for _, n := range slices.SortedFunc(maps.Keys(r.waiting.held), byID) {
		parts = append(parts, fmt.Sprintf("%s waits for %s", n.ID, r.heldBy(r.waiting.held[n])))
	}
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return strings.Join(parts, "; ")
}

// about says what a person is asked, if the node says it, and in which words.
func (w *wait) about() string {
	var text string
	if w.signal.About == nil || json.Unmarshal(w.signal.About, &text) == nil && text == "" {
		return ""
	}
	if text == "" {
		text = string(w.signal.About)
	}
	return afterColon(text)
}

// afterColon is the head of a text after a colon, nothing if there is none.
func afterColon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + head(text)
}

// head is as much of a text as people read in a list.
func head(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func byID(a, b *graph.Node) int { return strings.Compare(string(a.ID), string(b.ID)) }

func utc(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }
