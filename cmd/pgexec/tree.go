package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec"
)

// maxDescendants bounds the runs shown below others.
const maxDescendants = 1000

// withDescendants puts the runs below each run after it, the way a tree is read.
func (a *app) withDescendants(ctx context.Context, client *pgexec.Client, roots []*pgexec.Run) ([]*pgexec.Run, error) {
	ids := make([]pgexec.RunID, len(roots))
	for i, r := range roots {
		ids[i] = r.ID
	}
	below, err := client.Descendants(ctx, ids, maxDescendants)
	if err != nil {
		return nil, err
	}
	if len(below) == maxDescendants {
		fmt.Fprintf(a.err, "only the first %d child runs are shown\n", maxDescendants)
	}
	children := make(map[pgexec.RunID][]*pgexec.Run)
	for _, r := range below {
		children[r.ParentRunID] = append(children[r.ParentRunID], r)
	}
	var out []*pgexec.Run
	var walk func(runs []*pgexec.Run)
	walk = func(runs []*pgexec.Run) {
		for _, r := range runs {
			out = append(out, r)
			walk(children[r.ID])
		}
	}
	walk(roots)
	return out, nil
}

// levels tells how deep each run of a list stands under the others: its parent
// comes before it.
func levels(runs []*pgexec.Run) map[pgexec.RunID]int {
	level := make(map[pgexec.RunID]int, len(runs))
	for _, r := range runs {
		level[r.ID] = 0
		if above, ok := level[r.ParentRunID]; ok {
			level[r.ID] = above + 1
		}
	}
	return level
}

func indent(level int) string {
	if level == 0 {
		return ""
	}
	return strings.Repeat("  ", level-1) + "└ "
}

// spent shows tokens and cost, and how many turns had no price; nothing if nothing was spent.
func spent(u pgexec.Usage) string {
	var parts []string
	if tokens := u.InputTokens + u.OutputTokens; tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", tokens))
	}
	if u.CostNanoUSD > 0 {
		parts = append(parts, dollars(usd(u.CostNanoUSD)))
	}
	if u.Unpriced > 0 {
		parts = append(parts, fmt.Sprintf("%d at unknown prices", u.Unpriced))
	}
	return strings.Join(parts, ", ")
}

// knownCost is a cost in US dollars, nil if it is not known.
func knownCost(u pgexec.Usage) *float64 {
	if u.Unpriced > 0 {
		return nil
	}
	cost := usd(u.CostNanoUSD)
	return &cost
}

func dollars(usd float64) string { return fmt.Sprintf("$%.4g", usd) }
