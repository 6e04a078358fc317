package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

func (a *app) newRunPause() *cobra.Command {
	var reason string
	var out outputFlag
	cmd := controlCommand("pause RUN_ID", "Stop a run and all runs below it between nodes",
		func(ctx context.Context, id pgexec.RunID) error {
			return a.control(ctx, id, out, controlRequest{
				verb:    "pause",
				ask:     func(ctx context.Context, db database) (string, error) { return db.client.Pause(ctx, id, reason) },
				refused: func(answer string) bool { return ended(answer) || answer == "cancelling" },
			})
		})
	cmd.Long = `Stop a run and all runs below it between nodes: what is in flight finishes and is
recorded, and nothing more starts until "pgexec run resume".

Prints "paused", "already paused", or "pausing" while nodes are in flight. Exits
with 1 if the run has ended or is being cancelled.`
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the run")
	out.add(cmd)
	return cmd
}
