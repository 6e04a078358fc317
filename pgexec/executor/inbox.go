package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/wake"
)

// lookAgain is the wait before an inbox that could not be read is read again.
const lookAgain = 200 * time.Millisecond

// Poke tells the run that its row's inbox is at that version, or, with 0, that
// something may have come in. It never blocks.
func (r *Run) Poke(version int64) { r.mail.put(event{poke: &version}) }

// poked reads the inbox if there is something in it that is not known yet.
func (r *Run) poked(version int64) {
	if version == 0 || version > r.inbox.Seen {
		r.look()
	}
}

// look reads what has reached the run from outside: one statement, one snapshot.
func (r *Run) look() {
	if r.looking {
		r.lookAgain = true
		return
	}
	r.looking, r.lookAgain, r.unseen = true, false, true
	consumed, children, recorded, tasks := r.consumed, r.childNodes(), r.recorded, r.awaitsTasks()
	r.consumed, r.recorded = nil, nil // marking them saves the next owner a look at each; no harm if it fails
	r.inBackground(func(ctx context.Context) event {
		in, err := wake.ReadInbox(ctx, r.x.Pool, r.claimed.RunID, consumed, children)
		if err == nil && (tasks || len(recorded) > 0) {
			in.Tasks, err = wake.ReadTaskEnds(ctx, r.x.Pool, r.claimed.RunID, recorded)
		}
		return event{inbox: &in, err: err}
	})
}

// childNodes lists the nodes that wait for a child run.
func (r *Run) childNodes() []string {
	var out []string
	for n, w := range r.waits {
		if n.Kind == KindRun && !w.ending {
			out = append(out, string(n.ID))
		}
	}
	return out
}

// received takes in what a look has found.
func (r *Run) received(in *wake.Inbox, err error) {
	r.looking = false
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
	r.unseen = false
	r.takeIn(in)
	if r.lookAgain {
		r.look()
		return
	}
	for _, w := range r.waits {
		if w.overdue {
			r.timeOut(w)
		}
	}
}

func (r *Run) takeIn(in *wake.Inbox) {
	r.inbox, r.limits = *in, in.Limits
	switch in.Wanted {
	case "cancel":
		r.cancelRun(in.WantedReason)
		return
	case "pause":
		r.pauseReason = "paused"
		if in.WantedReason != "" {
			r.pauseReason = "paused: " + in.WantedReason
		}
	default:
		r.pauseReason = ""
	}
	r.matchAll()
	r.matchChildren()
	r.matchTasks()
}

// cancelRun stops everything; handlers get a moment to return.
func (r *Run) cancelRun(reason string) {
	if r.cancelled {
		return
	}
	r.cancelled, r.reason = true, reason
	r.log.Info("run is being cancelled", "reason", reason, "in_flight", r.inFlight)
	r.stopLaunch()
	r.stopTimers()
	r.cancel(ErrCancelled)
	r.giveUp = time.After(cancelGrace)
}

// limitReached names the limit that keeps any further node from starting; "" if there is none (G7).
func (r *Run) limitReached() string {
	spent, l := r.g.Usage(), r.limits
	now := r.x.NowFunc().UnixMicro()
	started := spent.Nodes + int64(r.inFlight+r.unconfirmed+r.children)
	switch {
	case l.MaxTokens > 0 && spent.InputTokens+spent.OutputTokens >= l.MaxTokens:
		return fmt.Sprintf("limit max_tokens reached: %d of %d tokens spent", spent.InputTokens+spent.OutputTokens, l.MaxTokens)
	case l.MaxCostNanoUSD > 0 && spent.CostNanoUSD >= l.MaxCostNanoUSD:
		return fmt.Sprintf("limit max_cost_usd reached: %.9g of %.9g US dollars spent", float64(spent.CostNanoUSD)/1e9, float64(l.MaxCostNanoUSD)/1e9)
	case l.MaxNodes > 0 && started >= l.MaxNodes:
		return fmt.Sprintf("limit max_nodes reached: %d of %d nodes", started, l.MaxNodes)
	case l.MaxWallMs > 0 && r.g.ActiveUs(now)/1000 >= l.MaxWallMs:
		return fmt.Sprintf("limit max_wall_ms reached: active for %d of %d ms", r.g.ActiveUs(now)/1000, l.MaxWallMs)
	case l.DeadlineUs > 0 && now >= l.DeadlineUs:
		return fmt.Sprintf("limit deadline reached: it was %s", time.UnixMicro(l.DeadlineUs).UTC().Format(time.RFC3339))
	}
	return ""
}

// Budget is what a run has spent and may spend, as of the start of an attempt.
type Budget struct {
	Spent  graph.Usage
	Active time.Duration
	Limits wake.Limits
	Now    time.Time // the database's clock
	// Reached says which limit is reached, for a node that starts all the same; "" if none is.
	Reached string
}

// NearLimit reports that some limit is used up to the soft limit.
func (b Budget) NearLimit() bool {
	near := func(used, limit int64) bool {
		return limit > 0 && float64(used) >= b.Limits.SoftLimit*float64(limit)
	}
	return near(b.Spent.InputTokens+b.Spent.OutputTokens, b.Limits.MaxTokens) ||
		near(b.Spent.CostNanoUSD, b.Limits.MaxCostNanoUSD) ||
		near(b.Spent.Nodes, b.Limits.MaxNodes) ||
		near(b.Active.Milliseconds(), b.Limits.MaxWallMs)
}

func (r *Run) budget() Budget {
	now := r.x.NowFunc()
	return Budget{
		Spent:  r.g.Usage(),
		Active: time.Duration(r.g.ActiveUs(now.UnixMicro())) * time.Microsecond,
		Limits: r.limits,
		Now:    now,

		Reached: r.limitReached(),
	}
}

// leftFor bounds what a child may spend by what its parent has left.
func (r *Run) leftFor(ask wake.Limits) wake.Limits {
	b := r.budget()
	left := func(limit, spent int64) int64 {
		if limit == 0 {
			return 0
		}
		return max(limit-spent, 1)
	}
	least := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	l := b.Limits
	ask.MaxTokens = least(ask.MaxTokens, left(l.MaxTokens, b.Spent.InputTokens+b.Spent.OutputTokens))
	ask.MaxCostNanoUSD = least(ask.MaxCostNanoUSD, left(l.MaxCostNanoUSD, b.Spent.CostNanoUSD))
	ask.MaxNodes = least(ask.MaxNodes, left(l.MaxNodes, b.Spent.Nodes))
	ask.MaxWallMs = least(ask.MaxWallMs, left(l.MaxWallMs, b.Active.Milliseconds()))
	ask.DeadlineUs = least(ask.DeadlineUs, l.DeadlineUs)
	ask.SoftLimit = l.SoftLimit
	return ask
}
