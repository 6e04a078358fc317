package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

type runResume struct {
	opts     pgexec.ResumeOpts
	deadline string
	out      outputFlag
}

func (a *app) newRunResume() *cobra.Command {
	var r runResume
	cmd := controlCommand("resume RUN_ID", "Continue a paused run where it stopped, and raise limits",
		func(ctx context.Context, id pgexec.RunID) error { return a.runResume(ctx, id, r) })
	cmd.Long = `Continue a paused run, and all paused runs below it, exactly where they stopped,
with limits raised if asked for. A limit that the run does not have stays absent.

Prints "resumed", "limits raised" for a run that was not paused, or "already
running" and the like if there was nothing to do. Exits with 1 if the run has
ended or is being cancelled.`
	cmd.Example = `  pgexec run resume 01a227d7-0b93-7229-8735-e31b5f949962 --add-tokens 50000 --add-wall 10m`
	flags := cmd.Flags()
	flags.Int64Var(&r.opts.AddTokens, "add-tokens", 0, "raise the limit on tokens by so many")
	flags.Float64Var(&r.opts.AddCostUSD, "add-cost-usd", 0, "raise the limit on cost by so many US dollars")
	flags.IntVar(&r.opts.AddNodes, "add-nodes", 0, "raise the limit on nodes by so many")
	flags.IntVar(&r.opts.AddTurns, "add-turns", 0, "raise the limit on model turns by so many")
	flags.IntVar(&r.opts.AddToolCalls, "add-tool-calls", 0, "raise the limit on tool calls by so many")
	flags.DurationVar(&r.opts.AddWall, "add-wall", 0, "raise the limit on active time by so much, such as 10m")
	flags.StringVar(&r.deadline, "deadline", "", "move the deadline to a later time: 2030-01-31T09:00:00Z, or a duration from now such as 90s")
	r.out.add(cmd)
	return cmd
}

func (a *app) runResume(ctx context.Context, id pgexec.RunID, r runResume) error {
	o := &r.opts
	switch {
	case o.AddTokens < 0:
		return usageErrorf("--add-tokens %d is negative: limits are raised, not lowered", o.AddTokens)
	case o.AddCostUSD < 0:
		return usageErrorf("--add-cost-usd %g is negative: limits are raised, not lowered", o.AddCostUSD)
	case !isAmount(o.AddCostUSD):
		return usageErrorf("--add-cost-usd %g is not an amount", o.AddCostUSD)
	case o.AddWall < 0 || o.AddWall%time.Millisecond != 0:
		return usageErrorf("--add-wall %s: want a positive number of milliseconds", o.AddWall)
	}
	for _, c := range []count{{"--add-nodes", o.AddNodes}, {"--add-turns", o.AddTurns}, {"--add-tool-calls", o.AddToolCalls}} {
		if err := c.check("is negative: limits are raised, not lowered"); err != nil {
			return err
		}
	}
	deadline, err := parseMoment("--deadline", r.deadline)
	if err != nil {
		return err
	}
	return a.control(ctx, id, r.out, controlRequest{
		verb: "resume",
		ask: func(ctx context.Context, db database) (string, error) {
			if o.Deadline, err = deadline.on(ctx, db.pool); err != nil {
				return "", err
			}
			return db.client.Resume(ctx, id, o)
		},
		refused: func(answer string) bool { return ended(answer) || answer == "cancelling" },
	})
}
