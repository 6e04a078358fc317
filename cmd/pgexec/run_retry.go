package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

func (a *app) newRunRetry() *cobra.Command {
	var out outputFlag
	cmd := controlCommand("retry RUN_ID", "Run the failed nodes of a failed run again",
		func(ctx context.Context, id pgexec.RunID) error {
			return a.control(ctx, id, out, controlRequest{
				verb: "retry",
				ask:  func(ctx context.Context, db database) (string, error) { return db.client.Retry(ctx, id) },
				refused: func(answer string) bool {
					return strings.HasPrefix(answer, "is cancelled") || strings.HasPrefix(answer, "is paused")
				},
			})
		})
	cmd.Long = `Run the failed nodes of a failed run again, those of its failed child runs
included, and go on from there. What has succeeded does not run again.

Prints "retrying", or "is running: nothing to retry" and the like for a run that
has not failed. Exits with 1 if the run was cancelled, which is for good, or is
paused, which "pgexec run resume" ends.`
	out.add(cmd)
	return cmd
}
