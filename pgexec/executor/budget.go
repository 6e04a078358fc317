package executor

import (
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/wake"
)

// Budget is what a run has spent and may spend, as of the start of an attempt.
type Budget struct {
	Spent  graph.Usage
	Active time.Duration
	Limits wake.Limits
	Now    time.Time // the database's clock
	// Reached says which limit is reached, for a node that starts all the same; "" if none is.
	Reached string
}

// budget is what the run has spent and may spend as of now.
func (r *Run) budget() Budget { return r.budgetWith(r.flight.nodes()) }

// budgetWith is the budget with that many nodes in flight.
func (r *Run) budgetWith(nodes int) Budget {
	now := r.x.NowFunc()
	b := Budget{
		Spent:  r.flight.spent.Plus(r.g.Usage()),
		Active: time.Duration(r.g.ActiveUs(now.UnixMicro())) * time.Microsecond,
		Limits: r.outside.limits,
		Now:    now,
	}
	b.Reached = b.reached(b.Spent.Nodes + int64(nodes+r.waiting.children))
	return b
}

// limitReached names the limit that keeps any further node from starting; "" if there is none (G7).
func (r *Run) limitReached() string { return r.budget().Reached }

func (b *Budget) tokens() int64 { return b.Spent.InputTokens + b.Spent.OutputTokens }

// reached names the limit that is used up, with that many nodes ended or begun.
func (b *Budget) reached(nodes int64) string {
	l, now := b.Limits, b.Now.UnixMicro()
	switch {
	case l.MaxTokens > 0 && b.tokens() >= l.MaxTokens:
		return fmt.Sprintf("limit max_tokens reached: %d of %d tokens spent", b.tokens(), l.MaxTokens)
	case l.MaxCostNanoUSD > 0 && b.Spent.CostNanoUSD >= l.MaxCostNanoUSD:
		return fmt.Sprintf("limit max_cost_usd reached: %.9g of %.9g US dollars spent", float64(b.Spent.CostNanoUSD)/1e9, float64(l.MaxCostNanoUSD)/1e9)
	case l.MaxNodes > 0 && nodes >= l.MaxNodes:
		return fmt.Sprintf("limit max_nodes reached: %d of %d nodes", nodes, l.MaxNodes)
	case l.MaxWallMs > 0 && b.Active.Milliseconds() >= l.MaxWallMs:
		return fmt.Sprintf("limit max_wall_ms reached: active for %d of %d ms", b.Active.Milliseconds(), l.MaxWallMs)
	case l.DeadlineUs > 0 && now >= l.DeadlineUs:
		return fmt.Sprintf("limit deadline reached: it was %s", utc(l.DeadlineUs))
	}
	return ""
}

// NearLimit reports that some limit is used up to the soft limit.
func (b Budget) NearLimit() bool {
	near := func(used, limit int64) bool {
		return limit > 0 && float64(used) >= b.Limits.SoftLimit*float64(limit)
	}
	return near(b.tokens(), b.Limits.MaxTokens) ||
		near(b.Spent.CostNanoUSD, b.Limits.MaxCostNanoUSD) ||
		near(b.Spent.Nodes, b.Limits.MaxNodes) ||
		near(b.Active.Milliseconds(), b.Limits.MaxWallMs)
}

// leftFor bounds what a child may spend by what its parent has left.
func (b Budget) leftFor(ask wake.Limits) wake.Limits {
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
	ask.MaxTokens = least(ask.MaxTokens, left(l.MaxTokens, b.tokens()))
	ask.MaxCostNanoUSD = least(ask.MaxCostNanoUSD, left(l.MaxCostNanoUSD, b.Spent.CostNanoUSD))
	ask.MaxNodes = least(ask.MaxNodes, left(l.MaxNodes, b.Spent.Nodes))
	ask.MaxWallMs = least(ask.MaxWallMs, left(l.MaxWallMs, b.Active.Milliseconds()))
	ask.DeadlineUs = least(ask.DeadlineUs, l.DeadlineUs)
	ask.SoftLimit = l.SoftLimit
	return ask
}
