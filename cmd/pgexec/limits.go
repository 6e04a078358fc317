package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

// limitFlags are the limits of a run on the command line.
type limitFlags struct {
	limits   pgexec.Limits
	deadline string
}

func (f *limitFlags) add(cmd *cobra.Command) {
	l, flags := &f.limits, cmd.Flags()
	flags.Int64Var(&l.MaxTokens, "max-tokens", 0, "pause the run when it has spent so many tokens (0: no limit; so for all limits)")
	flags.Float64Var(&l.MaxCostUSD, "max-cost-usd", 0, "pause it when it has cost so many US dollars")
	flags.IntVar(&l.MaxNodes, "max-nodes", 0, "pause it after so many nodes")
	flags.IntVar(&l.MaxTurns, "max-turns", 0, "pause an agent's run after so many model turns (0: what its definition says)")
	flags.IntVar(&l.MaxToolCalls, "max-tool-calls", 0, "pause it after so many tool calls (0: what its definition says)")
	flags.DurationVar(&l.MaxWall, "max-wall", 0, "pause it when it has been active for so long, such as 10m")
	flags.StringVar(&f.deadline, "deadline", "", "pause it at a time such as 2030-01-31T09:00:00Z, or when a duration such as 90s is over")
	flags.IntVar(&l.MaxParallel, "max-parallel", 0, "at most so many of its nodes at once")
}

// count is a flag that counts what a limit is about.
type count struct {
	flag  string
	value int
}

// check refuses what cannot be; negative says what is wrong with less than nothing.
func (c count) check(negative string) error {
	switch {
	case c.value < 0:
		return usageErrorf("%s %d %s", c.flag, c.value, negative)
	case c.value > math.MaxInt32:
		return usageErrorf("%s %d: a limit is at most %d", c.flag, c.value, math.MaxInt32)
	}
	return nil
}

// isAmount tells numbers from what only looks like one, NaN and infinity.
func isAmount(usd float64) bool { return usd-usd == 0 }

func (f *limitFlags) check() error {
	l := f.limits
	switch {
	case l.MaxTokens < 0:
		return usageErrorf("--max-tokens %d is negative", l.MaxTokens)
	case l.MaxCostUSD < 0:
		return usageErrorf("--max-cost-usd %g is negative", l.MaxCostUSD)
	case !isAmount(l.MaxCostUSD):
		return usageErrorf("--max-cost-usd %g is not an amount", l.MaxCostUSD)
	case l.MaxWall < 0 || l.MaxWall%time.Millisecond != 0:
		return usageErrorf("--max-wall %s: want a positive number of milliseconds", l.MaxWall)
	}
	for _, c := range []count{
		{"--max-nodes", l.MaxNodes}, {"--max-turns", l.MaxTurns}, {"--max-tool-calls", l.MaxToolCalls}, {"--max-parallel", l.MaxParallel},
	} {
		if err := c.check("is negative"); err != nil {
			return err
		}
	}
	_, err := parseMoment("--deadline", f.deadline)
	return err
}

// on returns the limits, with the deadline by the database's clock.
func (f *limitFlags) on(ctx context.Context, pool *pgxpool.Pool) (pgexec.Limits, error) {
	l := f.limits
	deadline, err := parseMoment("--deadline", f.deadline)
	if err == nil {
		l.Deadline, err = deadline.on(ctx, pool)
	}
	return l, err
}

// limitText lists the limits that a run has.
func limitText(l pgexec.Limits, now time.Time) string {
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(l.MaxTokens > 0, "%d tokens", l.MaxTokens)
	add(l.MaxCostUSD > 0, "%s", dollars(l.MaxCostUSD))
	add(l.MaxNodes > 0, "%d nodes", l.MaxNodes)
	add(l.MaxTurns > 0, "%d turns", l.MaxTurns)
	add(l.MaxToolCalls > 0, "%d tool calls", l.MaxToolCalls)
	add(l.MaxWall > 0, "%s active", span(l.MaxWall))
	add(!l.Deadline.IsZero(), "deadline %s", ago(now, l.Deadline))
	add(l.MaxParallel > 0, "%d nodes at once", l.MaxParallel)
	return strings.Join(parts, ", ")
}
