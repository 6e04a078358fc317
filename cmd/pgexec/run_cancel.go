package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

func (a *app) newRunCancel() *cobra.Command {
	var reason string
	var out outputFlag
	cmd := controlCommand("cancel RUN_ID", "End a run and all runs below it, whatever they are doing",
		func(ctx context.Context, id pgexec.RunID) error {
			return a.control(ctx, id, out, controlRequest{
				verb:    "cancel",
				ask:     func(ctx context.Context, db database) (string, error) { return db.client.Cancel(ctx, id, reason) },
				refused: func(answer string) bool { return ended(answer) && answer != "already cancelled" },
			})
		})
	cmd.Long = `End a run and all runs below it, whatever they are doing. Nodes in flight are
cancelled; the runs are over within a second or so.

Prints "cancelling", or "already cancelled". Exits with 1 if the run had ended
otherwise: nothing has changed then.`
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the run")
	out.add(cmd)
	return cmd
}
